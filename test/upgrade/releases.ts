/** The releases that there are: deploy/releases.json, which the release command adds to. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from '../support/running-service.ts';

export interface Release {
  readonly version: string;
  /** Hash, in full. */
  readonly commit: string;
}

/** Oldest first. */
export function releases(): readonly Release[] {
  const file = path.join(ROOT, 'deploy/releases.json');
  const commits = JSON.parse(readFileSync(file, 'utf8')) as Record<string, string>;
  return Object.entries(commits).map(([version, commit]) => ({ version, commit }));
}

export function lastRelease(): Release {
  const last = releases().at(-1);
  if (last === undefined) throw new Error('deploy/releases.json has no release');
  return last;
}

/** False: its sources can be had. Otherwise it has been said loudly that they cannot. */
export function releaseSkipReason({ version, commit }: Release): string | false {
  try {
    execFileSync('git', ['cat-file', '-e', `${commit}^{commit}`], { cwd: ROOT, stdio: 'ignore' });
    return false;
  } catch {
    const reason = `no commit ${commit.slice(0, 12)} in this clone's history: git fetch --unshallow`;
    const line = '*'.repeat(90);
    console.error(`${line}\nNOT TESTED: an upgrade from ${version}: ${reason}\n${line}`);
    return reason;
  }
}
