/** Each mutant changes one thing that a test of the function must notice; in source order. */
import * as ts from 'typescript/unstable/ast';
import type { Change } from './change.ts';

export interface Mutant extends Change {
  /** Of the text that names the mutant: an operator, a method, a statement. */
  readonly at: number;
}

type Pair = readonly [one: string, other: string];
const othersOf = (pairs: readonly Pair[]): ReadonlyMap<string, readonly string[]> => {
  const both = [...pairs, ...pairs.map(([one, other]): Pair => [other, one])];
  const byOne = Map.groupBy(both, ([one]) => one);
  return new Map([...byOne].map(([one, found]) => [one, found.map(([, other]) => other)]));
};
/** Operators and methods with their replacements. */
const OTHERS = othersOf(
  '< <=, > >=, < >=, > <=, === !==, && ||, + -, * /, += -=, min max, some every'
    .split(', ')
    .map(pair => pair.split(' ') as [string, string]),
);
/** For conditions in SQL, which Kysely's `where` takes as strings. */
const SQL_OTHERS = othersOf([
  ['and', 'or'],
  ['is', 'is not'],
  ['is null', 'is not null'],
  ['in', 'not in'],
  ['<=', '<'],
  ['>=', '>'],
  ['=', '<>'],
  ['=', '!='],
]);
const OF_SQL = /\b(?:and|or|is not null|is null)\b|<=|>=|<>|[<>=]/g;

/** @param scope a function or another declaration */
export function mutantsOf(tree: ts.SourceFile, scope: ts.Node): Mutant[] {
  const { mutants } = new Mutator(tree).visit(scope);
  // Stable at equal positions.
  return mutants.sort((one, other) => one.at - other.at);
}

class Mutator {
  readonly mutants: Mutant[] = [];
  readonly #tree: ts.SourceFile;
  readonly #startOf = (node: ts.Node) => ts.getTokenPosOfNode(node, this.#tree);
  readonly #textOf = (node: ts.Node) => this.#tree.text.slice(this.#startOf(node), node.end);

  constructor(tree: ts.SourceFile) {
    this.#tree = tree;
  }

  visit(node: ts.Node): this {
    if (ts.isTypeNode(node)) return this;
    this.#ofStatement(node);
    this.#ofOperator(node);
    this.#ofLiteral(node);
    node.forEachChild(child => void this.visit(child));
    return this;
  }

  #put(node: ts.Node, text: string, at = this.#startOf(node)): void {
    this.mutants.push({ at, start: this.#startOf(node), end: node.end, text });
  }

  #drop(one: ts.Node, list: readonly ts.Node[]): void {
    const start = this.#startOf(one);
    const next = list[list.indexOf(one) + 1];
    const [comma = ''] = /^\s*,/.exec(this.#tree.text.slice(one.end)) ?? [];
    const end = next === undefined ? one.end + comma.length : this.#startOf(next);
    this.mutants.push({ at: start, start, end, text: '' });
  }

  #ofStatement(node: ts.Node): void {
    const at = this.#startOf(node);
    if (ts.isExpressionStatement(node) || ts.isThrowStatement(node)) this.#put(node, ';');
    else if (ts.isReturnStatement(node)) {
      const { expression } = node;
      if (expression !== undefined) this.#put(expression, `!(${this.#textOf(expression)})`, at);
      this.#put(node, expression === undefined ? ';' : 'return;');
    } else if (ts.isIfStatement(node)) {
      for (const is of ['false', 'true']) this.#put(node.expression, is, at);
    } else if (ts.isArrowFunction(node) && !ts.isBlock(node.body)) {
      const others = [`!(${this.#textOf(node.body)})`, 'undefined'];
      for (const one of others)
        this.#put(node.body, one, this.#startOf(node.equalsGreaterThanToken));
    }
  }

  #ofOperator(node: ts.Node): void {
    if (ts.isConditionalExpression(node)) {
      const sides = [node.whenTrue, node.whenFalse].map(side => `(${this.#textOf(side)})`);
      for (const side of sides) this.#put(node, side, this.#startOf(node.questionToken));
    } else if (ts.isBinaryExpression(node)) {
      const { left, operatorToken, right } = node;
      const operator = this.#textOf(operatorToken);
      for (const other of OTHERS.get(operator) ?? []) this.#put(operatorToken, other);
      const sides = ['&&', '||', '??'].includes(operator) ? [left, right] : [];
      for (const side of sides) this.#put(node, this.#textOf(side), this.#startOf(operatorToken));
    } else if (ts.isCallExpression(node)) this.#ofCall(node);
    else if (ts.isAwaitExpression(node)) this.#put(node, this.#textOf(node.expression));
    else if (ts.isPrefixUnaryExpression(node)) this.#put(node, this.#textOf(node.operand));
  }

  #ofCall(node: ts.CallExpression): void {
    const { expression: callee, arguments: given } = node;
    const isChained = ts.isPropertyAccessExpression(callee);
    const at = this.#startOf(isChained ? callee.name : callee);
    if (isChained) {
      for (const other of OTHERS.get(this.#textOf(callee.name)) ?? [])
        this.#put(callee.name, other);
      this.#put(node, this.#textOf(callee.expression), at);
    }
    for (const one of given)
      if (!ts.isSpreadElement(one)) this.#put(node, `(${this.#textOf(one)})`, at);
    for (const one of given.slice(1)) this.#drop(one, given);
  }

  #ofLiteral(node: ts.Node): void {
    const text = this.#textOf(node);
    const { kind } = node;
    if (ts.isNumericLiteral(node)) this.#put(node, `${Number(text.replaceAll('_', '')) + 1}`);
    else if (ts.isStringLiteral(node)) {
      for (const other of SQL_OTHERS.get(node.text) ?? ['']) this.#put(node, `'${other}'`);
    } else if (kind === ts.SyntaxKind.TrueKeyword) this.#put(node, 'false');
    else if (kind === ts.SyntaxKind.FalseKeyword) this.#put(node, 'true');
    else if (ts.isRegularExpressionLiteral(node)) {
      for (const other of ['/(?:)/', '/(?!)/']) this.#put(node, other);
    } else if (ts.isObjectLiteralExpression(node)) {
      for (const one of node.properties) this.#drop(one, node.properties);
    } else if (ts.isArrayLiteralExpression(node)) {
      for (const one of node.elements) this.#drop(one, node.elements);
    } else if (ts.isTaggedTemplateExpression(node) && this.#textOf(node.tag).startsWith('sql')) {
      for (const { index, 0: found } of this.#textOf(node.template).matchAll(OF_SQL)) {
        const start = this.#startOf(node.template) + index;
        const [other = ''] = SQL_OTHERS.get(found) ?? [];
        this.mutants.push({ at: start, start, end: start + found.length, text: other });
      }
    }
  }
}
