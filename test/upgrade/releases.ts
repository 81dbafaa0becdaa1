/** Starts from the version recorded in last-release/. */
import { execFileSync } from 'node:child_process';
import { NOTHING_RECORDED, readSnapshot } from '../../control-plane/test/last-release/snapshot.ts';
import { ROOT } from '../running-service.ts';

export interface Release {
  readonly version: string;
  /** In full; empty: not recorded yet. */
  readonly commit: string;
}

export function lastRelease(): Release {
  const { release: version = 'the baseline', commit = '' } = readSnapshot('sqlite') ?? {};
  return { version, commit };
}

export function releaseSkipReason({ commit }: Release): string | false {
  if (commit === '') return NOTHING_RECORDED;
  try {
    execFileSync('git', ['cat-file', '-e', `${commit}^{commit}`], { cwd: ROOT, stdio: 'ignore' });
    return false;
  } catch {
    return `no commit ${commit.slice(0, 12)} in this clone's history: git fetch --unshallow`;
  }
}
