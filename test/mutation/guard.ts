/** A function that guards a bound, a fence, money or a URL, and its test. */
import type { SourceFile } from 'typescript/unstable/ast';
import type { Change } from './change.ts';
import { declaredAs } from './functions.ts';
import { mutantsOf } from './mutator.ts';

export interface Guard {
  readonly file: string;
  /** `outer.name` if the name is not unique. */
  readonly name: string;
  /** Occurs once in the function; mutants start there, or at the first operator without it. */
  readonly mark: string;
  /** The test that must fail: file and whole title. */
  readonly tests: string;
  readonly title: string;
  /** A bug that no operator makes: lines removed (`-`, once in the function) and added (`+`). */
  readonly byHand: string[];
}

/** Mutants tried before a guard counts as not caught. */
const TRIES_MAX = 4;

/**
 * Reads lines `name | mark | title of the test` below `source by tests` or `source by tests:
 * group`. The mark may be empty. `-` and `+` lines below one are its bug by hand.
 */
export function guardsOf({ raw: [text = ''] }: TemplateStringsArray): Guard[] {
  const guards: Guard[] = [];
  let [file, tests, group] = ['', '', ''];
  for (const line of text.split('\n').filter(Boolean)) {
    const [name = '', ...others] = line.split(' | ');
    if (/^ {2}[-+] /.test(line)) guards.at(-1)!.byHand.push(line);
    else if (others.length === 0) {
      [, file = '', tests = '', group = ''] = /^(\S+) by (\S+\.ts)(?:: (.*))?$/.exec(line) ?? [];
    } else {
      const title = group === '' ? `${others.pop()}` : `${group} › ${others.pop()}`;
      const marks = others.length === 0 ? [''] : others;
      guards.push(...marks.map(mark => ({ file, name, mark, tests, title, byHand: [] })));
    }
  }
  return guards;
}

/** In the order of trying. @throws if the source lacks the guard */
export function changesOf(guard: Guard, trees: ReadonlyMap<string, SourceFile>): Change[] {
  const { file, name, mark, byHand } = guard;
  const tree = trees.get(file)!;
  const [scope, ...others] = declaredAs(name, tree);
  if (scope === undefined || others.length > 0) throw new Error(`${file} has not one ${name}`);
  const at = (text: string) => {
    const parts = tree.text.slice(scope.pos, scope.end).split(text);
    if (parts.length === 2) return scope.pos + parts[0]!.length;
    throw new Error(`${name} of ${file} has "${text}" ${parts.length - 1} times, not once`);
  };
  if (byHand.length > 0) {
    const lines = (sign: string) =>
      byHand.filter(line => line[2] === sign).map(line => line.slice(4));
    const goes = lines('-').join('\n');
    return [{ start: at(goes), end: at(goes) + goes.length, text: lines('+').join('\n') }];
  }
  const [from, end] = mark === '' ? [scope.pos, scope.end] : [at(mark), at(mark) + mark.length];
  const mutants = mutantsOf(tree, scope).filter(one => one.at >= from && one.at < end);
  if (mutants.length > 0) return mutants.slice(0, TRIES_MAX);
  throw new Error(`no operator makes a mutant at "${mark}" in ${name} of ${file}`);
}
