/** Counts fields of a folder's types, with those of the types that they consist of. */
import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import path from 'node:path';
import {
  isInterfaceDeclaration,
  isIntersectionTypeNode,
  isTypeAliasDeclaration,
  isTypeLiteralNode,
  type Node,
  SyntaxKind,
} from 'typescript/unstable/ast';
import { API, type NodeHandle, type Project } from 'typescript/unstable/sync';
import { ROOT } from './source-files.ts';

export interface TypeOfFields {
  /** File and type; the file alone for an anonymous type. */
  readonly name: string;
  readonly fields: number;
}

/**
 * Counts fields of interfaces and object types, also through `extends`, intersections, `Pick` and
 * `Omit`. Leaves out columns of tables, methods, and types inferred from functions.
 * @param folder from `root`, in its project
 */
export function fieldsIn(folder: string, root = ROOT): TypeOfFields[] {
  const api = new API({ cwd: root });
  try {
    const config = path.join(root, 'tsconfig.json');
    const project = api.updateSnapshot({ openProjects: [config] }).getProject(config);
    assert.ok(project !== undefined);
    const files = globSync('**/*.ts', { cwd: path.join(root, folder), exclude: ['**/test/**'] });
    const own = files.filter(name => !name.endsWith('.test.ts')).sort();
    return own.flatMap(name => fieldsOf(project, path.join(root, folder), name));
  } finally {
    api.close();
  }
}

function fieldsOf(project: Project, folder: string, name: string): TypeOfFields[] {
  const tree = project.program.getSourceFile(path.join(folder, name));
  assert.ok(tree !== undefined, `the compiler does not read ${name}`);
  const { checker } = project;
  const found: TypeOfFields[] = [];
  const visit = (node: Node): void => {
    const isNamed = isInterfaceDeclaration(node) || isTypeAliasDeclaration(node);
    if (isNamed || isTypeLiteralNode(node) || isUnnamedIntersection(node)) {
      const type = checker.getTypeAtLocation(node);
      const fields = type === undefined ? [] : checker.getPropertiesOfType(type);
      found.push({
        name: isNamed ? `${name} ${node.name.text}` : name,
        fields: fields.filter(field => field.declarations.some(isField)).length,
      });
    }
    node.forEachChild(visit);
  };
  visit(tree);
  return found;
}

const isUnnamedIntersection = (node: Node) =>
  isIntersectionTypeNode(node) && !isTypeAliasDeclaration(node.parent);

function isField({ kind, path: file }: NodeHandle): boolean {
  return kind === SyntaxKind.PropertySignature && !/\/node_modules\/|\/tables\.ts$/.test(file);
}
