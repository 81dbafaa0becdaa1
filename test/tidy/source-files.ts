/** The project's sources as its rules see them. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import {
  type FunctionLikeDeclaration,
  getTokenPosOfNode,
  isArrayLiteralExpression,
  isAsExpression,
  isCallExpression,
  isConditionalExpression,
  isConstructorDeclaration,
  isExportDeclaration,
  isFunctionLikeDeclaration,
  isIdentifier,
  isImportDeclaration,
  isImportTypeNode,
  isLiteralTypeNode,
  isObjectLiteralExpression,
  isParenthesizedExpression,
  isPropertyAccessExpression,
  isPropertyAssignment,
  isPropertyDeclaration,
  isStringLiteralLikeNode,
  isTaggedTemplateExpression,
  isTemplateExpression,
  isUnionTypeNode,
  isVariableDeclaration,
  type Node,
  SyntaxKind,
  type SourceFile as SyntaxTree,
} from 'typescript/unstable/ast';
import { API } from 'typescript/unstable/sync';

export const ROOT = path.resolve(import.meta.dirname, '../..');

const readJson = (file: string) => JSON.parse(readFileSync(path.join(ROOT, file), 'utf8'));
const FOLDERS: ReadonlyMap<string, string> = new Map(
  readJson('package.json').workspaces.map((folder: string) => [
    readJson(`${folder}/package.json`).name,
    folder,
  ]),
);

export interface SourceFunction {
  readonly name: string;
  readonly lines: number;
}

export interface SourceText {
  /** `?` replaces a template's expressions. */
  readonly text: string;
  readonly line: number;
  /** The function or tag that takes it, also inside a list or object; else empty. */
  readonly takenBy: string;
  readonly inType: string | undefined;
}

export interface SourceFile {
  readonly name: string;
  readonly text: string;
  /** Packages as written; project files from the root. */
  readonly imports: readonly string[];
  readonly specifiers: readonly string[];
  /** Without those that take ava's `test`, which declare tests. */
  readonly functions: readonly SourceFunction[];
  /** String literals and templates, without module names. */
  readonly texts: readonly SourceText[];
}

function resolveImport(from: string, specifier: string): string {
  const [name = ''] = /^@matting\/[^/]+/.exec(specifier) ?? [];
  const folder = FOLDERS.get(name);
  if (folder !== undefined) return folder + specifier.slice(name.length);
  if (!specifier.startsWith('.')) return specifier;
  return path.posix.normalize(path.posix.join(path.posix.dirname(from), specifier));
}

/** Includes type-only and dynamic imports. */
function importedBy(node: Node): string | undefined {
  let specifier: Node | undefined;
  if (isImportDeclaration(node) || isExportDeclaration(node)) specifier = node.moduleSpecifier;
  else if (isImportTypeNode(node) && isLiteralTypeNode(node.argument)) {
    specifier = node.argument.literal;
  } else if (isCallExpression(node) && node.expression.kind === SyntaxKind.ImportKeyword) {
    specifier = node.arguments[0];
  }
  return specifier !== undefined && isStringLiteralLikeNode(specifier) ? specifier.text : undefined;
}

function nameOf(node: Node, tree: SyntaxTree): string {
  const textOf = (part: Node) => tree.text.slice(getTokenPosOfNode(part, tree), part.end);
  if (isConstructorDeclaration(node)) return 'constructor';
  const own = (node as { name?: Node }).name;
  if (own !== undefined) return textOf(own);
  const { parent } = node;
  if (isVariableDeclaration(parent) || isPropertyAssignment(parent)) return textOf(parent.name);
  if (isPropertyDeclaration(parent)) return textOf(parent.name);
  if (!isCallExpression(parent)) return 'anonymous';
  const [first] = parent.arguments;
  const title = first !== undefined && isStringLiteralLikeNode(first) ? `: ${first.text}` : '';
  return `${textOf(parent.expression)}${title}`;
}

function declaresTests({ parameters: [first] }: FunctionLikeDeclaration): boolean {
  return first !== undefined && isIdentifier(first.name) && first.name.text === 'test';
}

const isWithin = (node: Node) =>
  isArrayLiteralExpression(node) ||
  isAsExpression(node) ||
  isConditionalExpression(node) ||
  isObjectLiteralExpression(node) ||
  isParenthesizedExpression(node) ||
  isPropertyAssignment(node);

function takerOf(node: Node, tree: SyntaxTree): string {
  let inner = node;
  while (isWithin(inner.parent)) inner = inner.parent;
  const { parent } = inner;
  if (isTaggedTemplateExpression(parent)) return nameOfCallee(parent.tag, tree);
  if (!isCallExpression(parent) || parent.expression === inner) return '';
  return nameOfCallee(parent.expression, tree);
}

function nameOfCallee(callee: Node, tree: SyntaxTree): string {
  const name = isPropertyAccessExpression(callee) ? callee.name : callee;
  return tree.text.slice(getTokenPosOfNode(name, tree), name.end);
}

/** Undefined: no text, or a module's name. */
function textOf(node: Node): string | undefined {
  if (isTemplateExpression(node)) {
    return [node.head.text, ...node.templateSpans.map(({ literal }) => literal.text)].join('?');
  }
  if (!isStringLiteralLikeNode(node) || importedBy(node.parent) !== undefined) return undefined;
  return isLiteralTypeNode(node.parent) && importedBy(node.parent.parent) !== undefined
    ? undefined
    : node.text;
}

function readText(node: Node, text: string, tree: SyntaxTree): SourceText {
  const start = getTokenPosOfNode(node, tree);
  const line = tree.text.slice(0, start).split('\n').length;
  if (!isLiteralTypeNode(node.parent)) {
    return { text, line, takenBy: takerOf(node, tree), inType: undefined };
  }
  let around: Node = node.parent;
  while (isUnionTypeNode(around.parent)) around = around.parent;
  const { parent } = around;
  const inType = tree.text.slice(getTokenPosOfNode(parent, tree), parent.end);
  return { text, line, takenBy: '', inType };
}

function readTree(name: string, tree: SyntaxTree): SourceFile {
  const specifiers: string[] = [];
  const functions: SourceFunction[] = [];
  const texts: SourceText[] = [];
  const visit = (node: Node): void => {
    const imported = importedBy(node);
    if (imported !== undefined) specifiers.push(imported);
    const text = textOf(node);
    if (text !== undefined) texts.push(readText(node, text, tree));
    if (isFunctionLikeDeclaration(node) && !declaresTests(node)) {
      const text = tree.text.slice(getTokenPosOfNode(node, tree), node.end);
      functions.push({ name: nameOf(node, tree), lines: text.split('\n').length });
    }
    node.forEachChild(visit);
  };
  visit(tree);
  const imports = specifiers.map(specifier => resolveImport(name, specifier));
  return { name, text: tree.text, imports, specifiers, functions, texts };
}

/** TypeScript and AssemblyScript without generated files, by name. */
export function readSources(root = ROOT): SourceFile[] {
  const names = globSync(
    '{proto,program,client,control-plane,inference-node,bin,bench,test}/**/*.ts',
    {
      cwd: root,
      exclude: ['**/node_modules/**', 'proto/gen/**', '**/onnx/gen/**', 'client/build/**'],
    },
  );
  const api = new API({ cwd: root });
  try {
    const project = path.join(root, 'tsconfig.json');
    const open = names.map(name => path.join(root, name));
    const inProject = new Set(
      api.updateSnapshot({ openProjects: [project] }).getProject(project)?.rootFiles,
    );
    const snapshot = api.updateSnapshot({ openFiles: open.filter(file => !inProject.has(file)) });
    return names.sort().map(raw => {
      const file = path.join(root, raw);
      const owner = inProject.has(file)
        ? snapshot.getProject(project)
        : snapshot.getDefaultProjectForFile(file);
      const tree = owner?.program.getSourceFile(file);
      assert.ok(tree !== undefined, `the compiler does not read ${raw}`);
      return readTree(raw.split(path.sep).join('/'), tree);
    });
  } finally {
    api.close();
  }
}
