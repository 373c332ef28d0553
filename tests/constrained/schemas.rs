//! Bounded schemas: every value of each is shorter than an answer of the tests.

/// One a line.
pub(crate) const SCHEMAS: &str = r##"
{"type": "boolean"}
{"type": "null"}
{"type": "integer", "minimum": 0, "maximum": 9}
{"type": "integer", "minimum": -120, "maximum": 7999}
{"type": "integer", "exclusiveMinimum": 10, "exclusiveMaximum": 14}
{"type": "integer", "minimum": 0, "maximum": 96, "multipleOf": 12}
{"type": "number", "enum": [0.5, 1, -3, 2.25]}
{"type": "string", "maxLength": 12}
{"type": "string", "minLength": 3, "maxLength": 3}
{"type": "string", "maxLength": 0}
{"type": "string", "pattern": "^[a-f]{2,6}$"}
{"type": "string", "pattern": "^(red|green|blue)-[0-9]{1,3}$"}
{"type": "string", "pattern": "^\\p{Lu}\\p{Ll}{1,5}$"}
{"type": "string", "format": "date"}
{"type": "string", "format": "ipv4"}
{"type": "string", "format": "uuid"}
{"type": "string", "enum": ["", "a", "quote \" and \\ backslash", "new\nline", "ünïcödé 😀", "</s>", "<think>"]}
{"const": "constant"}
{"const": {"a": [1, 2, {"b": null}], "c": "text"}}
{"const": ["one", 2, false, null, 1.5]}
{"const": ""}
{"enum": [1, "one", null, true, [1], {"one": 1}]}
{"enum": ["north", "north east", "northern", "n"]}
{"type": ["boolean", "null"]}
{"type": ["integer", "boolean"], "minimum": 1, "maximum": 3}
{"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 4}]}
{"anyOf": [{"const": "ab"}, {"const": "abc"}, {"const": "abcd"}]}
{"oneOf": [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 5}]}
{"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 25}]}
{"allOf": [{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}, {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"]}], "additionalProperties": false, "properties": {"a": true, "b": true}}
{"type": "array", "items": {"type": "boolean"}, "maxItems": 4}
{"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 2, "maxItems": 5}
{"type": "array", "maxItems": 0}
{"type": "array", "prefixItems": [{"type": "boolean"}, {"const": 1}], "items": false, "minItems": 2}
{"type": "array", "prefixItems": [{"type": "null"}], "items": {"enum": ["x", "y"]}, "minItems": 1, "maxItems": 4}
{"type": "array", "items": {"type": "array", "items": {"enum": [0, 1]}, "minItems": 2, "maxItems": 2}, "minItems": 2, "maxItems": 2}
{"type": "object", "properties": {}, "additionalProperties": false}
{"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": false}
{"type": "object", "properties": {"on": {"type": "boolean"}, "off": {"type": "boolean"}}, "additionalProperties": false}
{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 130}}, "required": ["name", "age"], "additionalProperties": false}
{"type": "object", "properties": {"tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3}}, "required": ["tags"], "additionalProperties": false}
{"type": "object", "properties": {"in": {"type": "object", "properties": {"in": {"type": "object", "properties": {"x": {"type": "null"}}, "required": ["x"], "additionalProperties": false}}, "required": ["in"], "additionalProperties": false}}, "required": ["in"], "additionalProperties": false}
{"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 1, "patternProperties": {"^[ab]{1,2}$": {"type": "boolean"}}, "properties": {"fixed": {"type": "boolean"}}, "required": ["fixed"]}
{"type": "object", "patternProperties": {"^k[0-9]$": {"type": "boolean"}}, "additionalProperties": false, "maxProperties": 1}
{"type": "object", "properties": {"kind": {"const": "a"}, "value": {"type": "boolean"}}, "required": ["kind", "value"], "additionalProperties": false}
{"anyOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["kind", "radius"], "additionalProperties": false}, {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["kind", "side"], "additionalProperties": false}]}
{"$defs": {"flag": {"type": "boolean"}}, "type": "object", "properties": {"a": {"$ref": "#/$defs/flag"}, "b": {"$ref": "#/$defs/flag"}}, "required": ["a", "b"], "additionalProperties": false}
{"$defs": {"digit": {"type": "integer", "minimum": 0, "maximum": 9}}, "type": "array", "items": {"$ref": "#/$defs/digit"}, "minItems": 3, "maxItems": 3}
{"definitions": {"unit": {"enum": ["cm", "inch"]}}, "type": "object", "properties": {"unit": {"$ref": "#/definitions/unit"}}, "required": ["unit"], "additionalProperties": false}
{"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "boolean"}, {"type": "null"}], "additionalItems": false, "minItems": 2}
{"title": "A title", "description": "Ignored", "type": "object", "properties": {"ok": {"type": "boolean", "default": true, "description": "Ignored too"}}, "required": ["ok"], "additionalProperties": false}
{"type": "object", "properties": {"schlüssel": {"type": "boolean"}, "鍵": {"type": "null"}}, "required": ["schlüssel", "鍵"], "additionalProperties": false}
{"type": "object", "properties": {"a \"quoted\" name": {"type": "boolean"}, "line\nend": {"type": "boolean"}}, "required": ["a \"quoted\" name", "line\nend"], "additionalProperties": false}
{"type": "object", "properties": {"latitude": {"type": "integer", "minimum": -90, "maximum": 90}, "longitude": {"type": "integer", "minimum": -180, "maximum": 180}}, "required": ["latitude", "longitude"], "additionalProperties": false}
{"type": "object", "properties": {"choice": {"enum": ["yes", "no", "maybe"]}, "sure": {"type": "integer", "minimum": 0, "maximum": 100}}, "required": ["choice", "sure"], "additionalProperties": false}
{"type": "object", "properties": {"matrix": {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 3}, "minItems": 1, "maxItems": 3}}, "required": ["matrix"], "additionalProperties": false}
{"type": "object", "properties": {"date": {"type": "string", "format": "date"}, "who": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 6}]}}, "required": ["date", "who"], "additionalProperties": false}
{"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"type": "string", "maxLength": 3}, "c": {"type": "string", "maxLength": 3}}, "required": ["b"], "additionalProperties": false}
{"type": "object", "properties": {"only": {"const": "this"}}, "required": ["only"], "additionalProperties": false}
{"type": "string", "pattern": "^\\+[0-9]{2} [0-9]{3,5}$"}
{"type": "string", "pattern": "^(ab){1,3}c?$", "maxLength": 7}
{"type": "integer", "enum": [10, 100, 1000]}
{"type": "array", "items": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}]}, "minItems": 1, "maxItems": 3}
{"type": "object", "properties": {"x": {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25}}, "required": ["x"], "additionalProperties": false}
"##;
