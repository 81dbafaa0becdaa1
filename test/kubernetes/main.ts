/**
 * Runs each file in its own namespaces, as root. Arguments: names such as `fleet`, else all. Exits
 * 0 only if something passed and nothing failed.
 */
import { execFileSync, spawn } from 'node:child_process';
import { globSync, mkdtempSync, rmdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { concludeWith, runAva } from '../support/run-ava.ts';
import { missingForCluster } from './cluster.ts';

/** Four times the longest, scaling to zero. */
const TEST_MS_MAX = 3_600_000;
const NAMESPACES = ['--net', '--mount', '--pid', '--fork', '--mount-proc', '--kill-child'];
const ENDING = '.kubernetes.ts';
const ROOT = path.resolve(import.meta.dirname, '../..');

/** A fresh clone lacks them, and a cluster reaches no other machine. */
function fetchWeights(): void {
  const args = [path.join(ROOT, 'bin/matting.ts'), 'models', 'fetch', 'u2netp'];
  const cache = {
    MATTING_MODEL_DIR: path.join(ROOT, 'model-cache'),
    MATTING_CPU_RUNTIME: 'onnxruntime',
  };
  execFileSync(process.execPath, args, { env: { ...process.env, ...cache }, stdio: 'inherit' });
}

/** Resolves with the exit code once all processes ended. */
async function runApart(file: string): Promise<number> {
  const directory = mkdtempSync(path.join(tmpdir(), 'matting-cluster-'));
  const self = [process.execPath, import.meta.filename, '--inside', file];
  // It and everything in its namespaces end with this process.
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', 'unshare', ...NAMESPACES, ...self], {
    stdio: 'inherit',
    env: { ...process.env, TMPDIR: directory },
  });
  // While waiting, unshare reacts to no other signal.
  const end = () => child.kill('SIGKILL');
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, end);
  const code = await new Promise<number | null>(resolve => child.once('exit', resolve));
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, end);
  rmSync(directory, { recursive: true, force: true });
  removeGroups();
  return code ?? 1;
}

/** Of ended pods, the deepest first. */
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
  if (chosen.length > 0) fetchWeights();
  const codes: number[] = [];
  for (const file of chosen) codes.push(await runApart(path.join(import.meta.dirname, file)));
  return Math.max(...codes, chosen.length === 0 ? 64 : 0);
}

const [first, inside] = process.argv.slice(2);
if (first === '--inside' && inside !== undefined) {
  concludeWith([await runAva({ files: [inside], concurrency: 1, timeoutMs: TEST_MS_MAX })]);
} else process.exitCode = await runAll(process.argv.slice(2));
