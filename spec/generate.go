package spec

func (c *checker) connectGenerator(d *sourceDecl) connector { return connector{} }
