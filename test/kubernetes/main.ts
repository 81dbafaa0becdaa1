/**
 * Runs the tests that need a cluster, each file in namespaces of its own, as root. Arguments: names
 * such as `fleet`, else all. Exits 0 only when something passed and nothing failed.
 */
import { spawn } from 'node:child_process';
import { globSync, mkdtempSync, rmdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { concludeWith, runAva } from '../support/run-ava.ts';
import { missingForCluster } from './cluster.ts';

/** The longest, the way to zero, takes a quarter of it. */
const TEST_MS_MAX = 3_600_000;
const NAMESPACES = ['--net', '--mount', '--pid', '--fork', '--mount-proc', '--kill-child'];
const ENDING = '.kubernetes.ts';

/** The exit code, once all processes are gone. */
async function runApart(file: string): Promise<number> {
  const directory = mkdtempSync(path.join(tmpdir(), 'matting-cluster-'));
  const self = [process.execPath, import.meta.filename, '--inside', file];
  // However this process ends, so does that one; and with it all that is in the namespaces.
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', 'unshare', ...NAMESPACES, ...self], {
    stdio: 'inherit',
    env: { ...process.env, TMPDIR: directory },
  });
  // unshare heeds no other signal while it waits.
  const end = () => child.kill('SIGKILL');
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, end);
  const code = await new Promise<number | null>(resolve => child.once('exit', resolve));
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, end);
  rmSync(directory, { recursive: true, force: true });
  removeGroups();
  return code ?? 1;
}

/** Control groups of pods that are gone, the deepest first. */
function removeGroups(): void {
  const groups = globSync('/sys/fs/cgroup/{*,.}/kubepods/**/');
  for (const group of groups.sort((one, other) => other.length - one.length)) {
    try {
      rmdirSync(group);
    } catch (error) {
      console.error(`${group} stays: ${(error as Error).message}`);
    }
  }
}

async function runAll(names: readonly string[]): Promise<number> {
  const missing = missingForCluster();
  if (missing.length > 0) {
    console.error(`NOT TESTED on a cluster: ${missing.join(', ')}`);
    return 69;
  }
  const files = globSync(`*${ENDING}`, { cwd: import.meta.dirname }).sort();
  const chosen = files.filter(
    file => names.length === 0 || names.includes(path.basename(file, ENDING)),
  );
  const codes: number[] = [];
  for (const file of chosen) codes.push(await runApart(path.join(import.meta.dirname, file)));
  return Math.max(...codes, chosen.length === 0 ? 64 : 0);
}

const [first, inside] = process.argv.slice(2);
// Runs inside of the namespaces.
if (first === '--inside' && inside !== undefined) {
  concludeWith([await runAva({ files: [inside], concurrency: 1, timeoutMs: TEST_MS_MAX })]);
} else process.exitCode = await runAll(process.argv.slice(2));
