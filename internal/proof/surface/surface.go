// Package surface lists what a package shows to its importers. TestSurface holds the root to its
// list, and tools/release compares the lists of two versions.
package surface

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// List lists what go doc shows of the package in a folder, sorted, a line each: constants with
// their values, functions, types, exported fields and methods.
func List(dir string) (lines []string, err error) {
	set := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	render := func(node any) string {
		var text strings.Builder
		if failed := printer.Fprint(&text, set, node); failed != nil && err == nil {
			err = failed
		}
		return strings.Join(strings.Fields(text.String()), " ")
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, failed := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if failed != nil {
			return nil, failed
		}
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(strings.TrimPrefix(render(d.Recv.List[0].Type), "*"))) {
					d.Doc, d.Body = nil, nil
					lines = append(lines, render(d))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					lines = append(lines, specLines(d.Tok, spec, render)...)
				}
			}
		}
	}
	slices.Sort(lines)
	return lines, err
}

// specLines lists what a constant, variable or type shows.
func specLines(kind token.Token, spec ast.Spec, render func(any) string) (lines []string) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for i, name := range s.Names {
			if !name.IsExported() {
				continue
			}
			line := kind.String() + " " + name.Name
			if s.Type != nil {
				line += " " + render(s.Type)
			}
			if kind == token.CONST && i < len(s.Values) {
				line += " = " + render(s.Values[i])
			}
			lines = append(lines, line)
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return nil
		}
		var fields *ast.FieldList
		switch kind := s.Type.(type) {
		case *ast.StructType:
			fields = kind.Fields
			lines = append(lines, "type "+s.Name.Name+" struct")
		case *ast.InterfaceType:
			fields = kind.Methods
			lines = append(lines, "type "+s.Name.Name+" interface")
		default:
			return []string{"type " + s.Name.Name + " " + render(s.Type)}
		}
		for _, field := range fields.List {
			for _, name := range field.Names {
				if !name.IsExported() {
					continue
				}
				line := s.Name.Name + "." + name.Name + " " + render(field.Type)
				if field.Tag != nil {
					line += " " + field.Tag.Value
				}
				lines = append(lines, line)
			}
		}
	}
	return lines
}
