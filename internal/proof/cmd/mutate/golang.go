package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// swaps are the operators that stand for each other, the nearest mistake first.
var swaps = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.QUO},
	token.SHL: {token.SHR}, token.SHR: {token.SHL},
}

// goMutants lists what can be broken in a Go file: operators, conditions, constants, booleans, min
// and max, statements left out, and functions that do nothing.
func goMutants(file string, source []byte) ([]mutant, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	b := breaker{file: file, source: source, set: set}
	for _, decl := range parsed.Decls {
		b.scope = "-"
		if f, is := decl.(*ast.FuncDecl); is {
			b.scope = f.Name.Name
		}
		if g, is := decl.(*ast.GenDecl); is && g.Tok == token.IMPORT {
			continue
		}
		ast.Inspect(decl, b.visit)
	}
	return b.mutants, nil
}

// breaker collects the mutants of one Go file.
type breaker struct {
	file    string
	source  []byte
	set     *token.FileSet
	scope   string
	mutants []mutant
}

func (b *breaker) text(n ast.Node) string {
	return string(b.source[b.offset(n.Pos()):b.offset(n.End())])
}
func (b *breaker) offset(p token.Pos) int { return b.set.Position(p).Offset }

// replace adds a mutant: the text between two positions becomes another.
func (b *breaker) replace(from, to token.Pos, text string) {
	b.mutants = append(b.mutants, newMutant(b.file, b.scope, b.source, b.offset(from), b.offset(to), text))
}

func (b *breaker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Body != nil && n.Type.Results == nil && len(n.Body.List) > 0 {
			b.replace(n.Body.Lbrace, n.Body.Lbrace+1, "{\n\tif true {\n\t\treturn\n\t}\n")
		}
	case *ast.BinaryExpr:
		for _, other := range swaps[n.Op] {
			b.replace(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other.String())
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT || n.Op == token.SUB {
			b.replace(n.OpPos, n.OpPos+1, "")
		}
	case *ast.IfStmt:
		b.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			b.replace(n.Cond.Pos(), n.Cond.End(), "("+b.text(n.Cond)+") && false")
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, clause := range n.Body.List {
				for _, cond := range clause.(*ast.CaseClause).List {
					b.condition(cond)
				}
			}
		}
	case *ast.BasicLit:
		if n.Kind == token.INT {
			b.replace(n.Pos(), n.End(), "("+n.Value+" + 1)")
			if n.Value != "0" {
				b.replace(n.Pos(), n.End(), "("+n.Value+" - 1)")
			}
		}
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			b.replace(n.Pos(), n.End(), other)
		}
	case *ast.CallExpr:
		if f, is := n.Fun.(*ast.Ident); is && len(n.Args) > 1 {
			if other := map[string]string{"min": "max", "max": "min"}[f.Name]; other != "" {
				b.replace(f.Pos(), f.End(), other)
			}
		}
	case *ast.ExprStmt:
		b.replace(n.Pos(), n.End(), "")
	case *ast.IncDecStmt:
		b.replace(n.Pos(), n.End(), "")
	case *ast.BranchStmt:
		if n.Label == nil && n.Tok == token.CONTINUE {
			b.replace(n.Pos(), n.End(), "break")
		}
	case *ast.AssignStmt:
		b.assignment(n)
	}
	return true
}

// condition makes a condition never and always true; what it reads is still used, so that it
// builds.
func (b *breaker) condition(cond ast.Expr) {
	b.replace(cond.Pos(), cond.End(), "("+b.text(cond)+") && false")
	b.replace(cond.Pos(), cond.End(), "("+b.text(cond)+") || true")
}

// assignment leaves an assignment out, part by part; what it would have written is still computed.
func (b *breaker) assignment(n *ast.AssignStmt) {
	switch {
	case n.Tok == token.DEFINE:
	case n.Tok != token.ASSIGN: // += and its like
		b.replace(n.Pos(), n.End(), "_ = "+b.text(n.Rhs[0]))
	default:
		for _, to := range n.Lhs {
			if b.text(to) != "_" {
				b.replace(to.Pos(), to.End(), "_")
			}
		}
	}
}

// squeezed is a piece of source in one line.
func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }
