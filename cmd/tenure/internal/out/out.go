package out

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Format is how a command answers.
type Format string

// The formats.
const (
	Table Format = "table" // for people, 80 columns
	Wide  Format = "wide"  // for people, with all columns
	JSON  Format = "json"  // one document
	Lines Format = "jsonl" // one document a line
	YAML  Format = "yaml"
)

// Formats are all of them.
var Formats = []Format{Table, Wide, JSON, Lines, YAML}

// ParseFormat reads a format.
func ParseFormat(text string) (Format, error) {
	for _, format := range Formats {
		if string(format) == text {
			return format, nil
		}
	}
	return "", fmt.Errorf("%q is no format (fix: table, wide, json, jsonl or yaml)", text)
}

// Person reports whether people read it.
func (f Format) Person() bool { return f == Table || f == Wide }

// Value writes a value in a format for programs. A slice is one document, but for Lines, which
// writes one line an element.
func Value(w io.Writer, format Format, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	switch format {
	case YAML:
		return writeYAML(w, text)
	case Lines:
		return writeLines(w, text)
	}
	_, err = fmt.Fprintf(w, "%s\n", harmless(text))
	return err
}

// writeLines writes each element of a list, or the whole, in one line.
func writeLines(w io.Writer, text []byte) error {
	elements := []json.RawMessage{text}
	if bytes.HasPrefix(text, []byte("[")) {
		if err := json.Unmarshal(text, &elements); err != nil {
			return err
		}
	}
	for _, element := range elements {
		var line bytes.Buffer
		if err := json.Compact(&line, element); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n", harmless(line.Bytes())); err != nil {
			return err
		}
	}
	return nil
}

// harmless escapes what encoding/json leaves as it is and a terminal may obey. In JSON such
// characters can only stand in texts.
func harmless(text []byte) []byte {
	var b bytes.Buffer
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r != '\n' && Hostile(r) {
			if r > 0xffff {
				high, low := 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff
				fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		} else {
			b.Write(text[:size])
		}
		text = text[size:]
	}
	return b.Bytes()
}

// writeYAML writes JSON as YAML, in the style of people, in the same order. It is no text of YAML
// itself: that has no names of more than 1,024 characters, and fewer characters.
func writeYAML(w io.Writer, text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	document, err := nodeOf(decoder)
	if err != nil {
		return err
	}
	quote(document)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(document); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		body, end := strings.TrimSuffix(line, "\n"), "\n"
		if _, err := io.WriteString(w, spelled(body)+end); err != nil {
			return err
		}
	}
	return nil
}

// nodeOf reads the next value.
func nodeOf(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch value := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if value == '{' {
			node.Kind = yaml.MappingNode // its names and values come in turn
		}
		for decoder.More() {
			child, err := nodeOf(decoder)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		_, err := decoder.Token() // its end
		return node, err
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}, nil
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}, nil // a number, true or false
}

// spelled escapes what is left after quote, all of which stands between double quotes.
func spelled(text string) string {
	var b strings.Builder
	for _, r := range text {
		if Hostile(r) { // at most four digits: the writer escapes what has more itself
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// elsewhere are texts that the writer leaves as they are, and readers of YAML 1.1 take for true or
// false, or for a number; and the name that has a map merged.
var elsewhere = regexp.MustCompile(`^(?:(?i:y|n|yes|no|on|off)|<<|=|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$`)

// quote has texts quoted that have a hostile character, so that it can be escaped, or that readers
// may take for something else.
func quote(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && (strings.IndexFunc(node.Value, Hostile) >= 0 || elsewhere.MatchString(node.Value)) {
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		quote(child)
	}
}
