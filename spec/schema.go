package spec

import "encoding/json"

// Schema returns the JSON Schema of pipeline files, for editors. It knows the grammar's shape; names, types and
// expressions are checked by Parse.
func Schema() []byte {
	s := schemaOf(grammar())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "tridentd pipeline"
	b, err := json.MarshalIndent(s, "", "  ") // the keys of maps are written in order
	if err != nil {
		panic("spec: the schema can't be written: " + err.Error())
	}
	return append(b, '\n')
}

type object = map[string]any

// variable matches a value that is, or holds, a variable of the environment.
var variable = object{"type": "string", "pattern": `\$\{`}

func schemaOf(f *field) object {
	s := shapeOf(f)
	if f.doc != "" {
		s["description"] = f.doc
	}
	return s
}

func shapeOf(f *field) object {
	switch f.kind {
	case kindObject:
		return objectSchema(f)
	case kindMap:
		return object{"type": "object", "minProperties": 1, "propertyNames": object{"pattern": namePattern(f.keys)}, "additionalProperties": schemaOf(f.item)}
	case kindList:
		item := schemaOf(f.item)
		array := object{"type": "array", "minItems": 1, "items": item}
		if f.item.kind == kindObject {
			return array
		}
		return object{"anyOf": []any{array, item}}
	case kindEnum:
		choices := []any{object{"enum": f.enum}, variable}
		if f.enumOr != nil {
			choices = append(choices, schemaOf(f.enumOr))
		}
		return object{"anyOf": choices}
	case kindInt:
		choices := []any{object{"type": "integer", "minimum": f.min}, variable}
		if f.enumOr != nil {
			choices = append(choices, schemaOf(f.enumOr))
		}
		return object{"anyOf": choices}
	case kindBool:
		return object{"anyOf": []any{object{"type": "boolean"}, variable}}
	case kindDuration:
		return object{"anyOf": []any{object{"type": "string", "pattern": `^([0-9.]+d)?([0-9.]+(ns|us|µs|ms|s|m|h))*$`}, variable}}
	case kindSize:
		return object{"anyOf": []any{object{"type": "integer", "minimum": f.min}, object{"type": "string", "pattern": `^[0-9]+ *([KMG]iB|[kKMG]?B)?$`}, variable}}
	case kindShare:
		return object{"anyOf": []any{object{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, object{"type": "string", "pattern": `^[0-9.]+ *%?$`}, variable}}
	case kindName, kindField, kindRef:
		return object{"anyOf": []any{object{"type": "string", "pattern": namePattern(f.kind)}, variable}}
	case kindExpr:
		return object{"type": []string{"string", "boolean", "number"}}
	case kindAggregate:
		return object{"type": "string", "pattern": `\(.*\)`}
	case kindString:
		return object{"type": []string{"string", "number", "boolean"}}
	case kindValue:
		return object{}
	}
	panic("spec: a field of no kind")
}

func namePattern(k kind) string {
	if k == kindRef {
		return "."
	}
	if k == kindField {
		return "^[A-Za-z_][A-Za-z0-9_]*$"
	}
	return "^[A-Za-z0-9][A-Za-z0-9_-]*$"
}

func objectSchema(f *field) object {
	props := object{}
	var required []string
	var operators []any
	for _, c := range f.fields {
		if c.later {
			continue
		}
		props[c.name] = schemaOf(c)
		switch {
		case c.operator:
			operators = append(operators, object{"required": []string{c.name}})
		case c.required:
			required = append(required, c.name)
		}
	}
	s := object{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	if len(operators) > 0 {
		s["oneOf"] = operators
	}
	return s
}
