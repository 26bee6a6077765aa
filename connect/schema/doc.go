// Package schema reads records of Avro and Protobuf by schemas from files or from a schema registry, and says under which id a registry
// has the schema that records are written by.
//
// What a record decodes to depends on its bytes and on the schemas alone. A registry never changes what an id stands for, so that what
// it has answered once is kept and never asked again. A record whose id the registry doesn't know is a bad record; a registry that is
// away is a transient failure of the batch; one that refuses the credentials is a permanent one.
//
// The registry is one that speaks the HTTP API of Confluent's; records carry the id of their schema in its form: a zero byte, the id in
// four bytes, the most significant first, and for Protobuf the place of the message in its file.
package schema
