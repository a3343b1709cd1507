package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"gopkg.in/yaml.v3"
)

// JSONToYAML rewrites one JSON text as YAML with the same order of members, for output that people read. Numbers keep every
// digit; a text that YAML would read as something else is quoted.
func JSONToYAML(jsonText []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(jsonText))
	dec.UseNumber()
	root, err := jsonNode(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, err
	}
	return buf.Bytes(), enc.Close()
}

func jsonNode(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode}
	switch v := token.(type) {
	case nil:
		n.Tag, n.Value = "!!null", "null"
	case bool:
		n.Tag, n.Value = "!!bool", "false"
		if v {
			n.Value = "true"
		}
	case json.Number:
		n.Value = v.String()
	case string:
		return textNode(v), nil
	case json.Delim:
		n.Kind = yaml.SequenceNode
		if v == '{' {
			n.Kind = yaml.MappingNode
		}
		for dec.More() {
			if v == '{' { // the name of a member, then its value
				name, err := jsonNode(dec)
				if err != nil {
					return nil, err
				}
				n.Content = append(n.Content, name)
			}
			item, err := jsonNode(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
		_, err = dec.Token()
		return n, err
	}
	return n, nil
}
