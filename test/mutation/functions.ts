import assert from 'node:assert/strict';
import path from 'node:path';
import * as ts from 'typescript/unstable/ast';
import { API } from 'typescript/unstable/sync';

export const ROOT = path.resolve(import.meta.dirname, '../..');

/** By file name; imports are not read. */
export function readTrees(files: readonly string[]): ReadonlyMap<string, ts.SourceFile> {
  const project = path.join(ROOT, 'tsconfig.mutation.json');
  const compilerOptions = { noResolve: true, noLib: true, types: [] };
  const api = new API({
    cwd: ROOT,
    fs: {
      readFile: name => (name === project ? JSON.stringify({ compilerOptions, files }) : undefined),
      fileExists: name => (name === project ? true : undefined),
    },
  });
  try {
    const program = api.updateSnapshot({ openProjects: [project] }).getProject(project)?.program;
    const treeOf = (file: string) => {
      const tree = program?.getSourceFile(path.join(ROOT, file));
      assert.ok(tree !== undefined, `the compiler does not read ${file}`);
      return [file, tree] as const;
    };
    return new Map(files.map(treeOf));
  } finally {
    api.close();
  }
}

function nameOf(node: ts.Node, tree: ts.SourceFile): string | undefined {
  if (ts.isConstructorDeclaration(node)) return node.body === undefined ? undefined : 'constructor';
  const isNamed =
    ((ts.isFunctionDeclaration(node) || ts.isMethodDeclaration(node)) && node.body !== undefined) ||
    ts.isGetAccessorDeclaration(node) ||
    ts.isClassDeclaration(node) ||
    ts.isPropertyDeclaration(node) ||
    ts.isPropertyAssignment(node) ||
    ts.isVariableDeclaration(node);
  const name = isNamed ? node.name : undefined;
  return name === undefined
    ? undefined
    : tree.text.slice(ts.getTokenPosOfNode(name, tree), name.end);
}

/** Declarations with the path `outer.name`; otherwise all whose path ends with it. */
export function declaredAs(name: string, tree: ts.SourceFile): ts.Node[] {
  const found: { readonly node: ts.Node; readonly full: string }[] = [];
  const visit = (node: ts.Node, outer: string): void => {
    const own = nameOf(node, tree);
    const full = own === undefined ? outer : `${outer}.${own}`;
    if (own !== undefined && full.endsWith(`.${name}`)) found.push({ node, full });
    node.forEachChild(child => visit(child, full));
  };
  visit(tree, '');
  const whole = found.filter(({ full }) => full === `.${name}`);
  return (whole.length > 0 ? whole : found).map(({ node }) => node);
}
