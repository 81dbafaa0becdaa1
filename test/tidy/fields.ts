/** How many fields the types of a folder have, with those of the types that they are made of. */
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
  /** The file and the type's name; the file alone for a type without one. */
  readonly name: string;
  readonly fields: number;
}

/**
 * Counts what a written type lists: fields of an interface, of an object type, of what it extends
 * and of what it takes by an intersection, `Pick` or `Omit`. Columns of the tables do not count,
 * nor methods, nor fields that TypeScript infers from a function's answer, which lists them itself.
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
