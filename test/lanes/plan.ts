import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { type Changes, changesSince, withDependencies } from './changes.ts';
import type { Suite } from './suites.ts';

export const LAST_GREEN = 'test/lanes/last-green';
const NOT_TESTED = 'not tested: ';

/** Of `make nightly`: the commit, and suites whose program was missing. */
export interface Green {
  readonly commit: string;
  readonly notTested: readonly string[];
}

export interface Planned {
  readonly suite: Suite;
  readonly isRun: boolean;
  readonly reason: string;
  /** `ONLY`. */
  readonly only: string | undefined;
}

export const nameOf = ({ command, only }: Suite) =>
  only === undefined ? command : `${command} ONLY=${only}`;

export function writtenGreen({ commit, notTested }: Green): string {
  return [commit, ...notTested.map(name => NOT_TESTED + name), ''].join('\n');
}

/** @returns undefined if no run was green yet */
export function readGreen(root: string): Green | undefined {
  const file = path.join(root, LAST_GREEN);
  const [commit = '', ...rest] = globSync(file).flatMap(name =>
    readFileSync(name, 'utf8').split('\n'),
  );
  if (commit === '') return undefined;
  return { commit, notTested: rest.map(line => line.slice(NOT_TESTED.length)) };
}

/** All suites of every change, and nightly ones that are affected since then. */
export function planOfChange(root: string, suites: readonly Suite[]): Planned[] {
  const green = readGreen(root);
  const changes = green && changesSince(root, green.commit);
  return suites.flatMap(suite => {
    if (suite.lane === 'by hand') return [];
    const planned = { suite, isRun: true, only: suite.only };
    if (suite.lane === 'every change') return [{ ...planned, reason: 'it runs with every change' }];
    if (green === undefined) return [{ ...planned, reason: `there is no ${LAST_GREEN}` }];
    if (changes === undefined) {
      return [{ ...planned, reason: `this clone does not have commit ${green.commit}` }];
    }
    if (green.notTested.includes(nameOf(suite))) {
      return [{ ...planned, reason: `the nightly run of ${green.commit} did not test it` }];
    }
    return [afterChanges(root, suite, { ...changes, commit: green.commit })];
  });
}

function afterChanges(
  root: string,
  suite: Suite,
  { files, packages, commit }: Changes & { readonly commit: string },
): Planned {
  const { only, covers = [], takesFiles } = suite;
  const since = `since ${commit}`;
  const wanted = packages.size === 0 ? [] : withDependencies(root, suite.packages ?? []);
  const updated = [...wanted].filter(name => packages.has(name));
  if (updated.length > 0) {
    return { suite, isRun: true, only, reason: `another ${updated[0]} ${since}` };
  }
  const changed = files.filter(file => covers.some(each => isCovered(file, each)));
  if (changed.length === 0) return { suite, isRun: false, only, reason: `unchanged ${since}` };
  const reason = `${changed[0]} changed ${since}`;
  return { suite, isRun: true, only: takesFiles ? changed.join(' ') : only, reason };
}

function isCovered(file: string, glob: string): boolean {
  return path.matchesGlob(file, glob) || path.matchesGlob(file, `${glob}/**`);
}
