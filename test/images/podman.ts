/** Containers with the fewest rights that the images promise to need. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ROOT } from '../running-service.ts';
import { findProgram } from '../support/foreign-program.ts';
import { requireTeapot } from '../support/teapot.ts';
import { type Ending, temporaryFolder } from '../support/temporary-folder.ts';

const PREFIX = process.env.MATTING_TEST_IMAGE_PREFIX ?? 'localhost/';
const TAG = process.env.MATTING_TEST_IMAGE_TAG ?? 'dev';
const START_MS_MAX = 280_000;
const ASKED_EVERY_MS = 2000;
const OUTPUT_BYTES_MAX = 256 * 1024 * 1024;

export const CONTROL_PLANE = `${PREFIX}matting-control-plane:${TAG}`;
export const NODE = `${PREFIX}matting-node:${TAG}`;
export const NODE_BARE = `${PREFIX}matting-node:${TAG}-bare`;
export const ALL_IN_ONE = `${PREFIX}matting:${TAG}`;

/** An unknown user without capabilities, on a read-only root, offline. */
export const LOCKED = [
  '--read-only',
  ...['--cap-drop', 'all', '--security-opt', 'no-new-privileges'],
  ...['--user', '4711:4712', '--network', 'none'],
] as const;

export function skipWithoutPodman(): string | false {
  return findProgram('podman') === undefined ? 'no podman here' : false;
}

export function podman(args: readonly string[], input?: Uint8Array): string {
  return podmanBytes(args, input).toString('utf8').trim();
}

export function podmanBytes(args: readonly string[], input: Uint8Array = new Uint8Array()): Buffer {
  return execFileSync('podman', args, {
    input,
    maxBuffer: OUTPUT_BYTES_MAX,
    stdio: ['pipe', 'pipe', 'pipe'],
  });
}

export function tried(args: readonly string[]): { code: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync('podman', args, { encoding: 'utf8' });
  return { code: status, output: `${stdout}${stderr}` };
}

/** A container is removed before the one whose network it shares. */
const started: string[] = [];
process.once('exit', () => {
  if (started.length > 0)
    spawnSync('podman', ['rm', '--force', '--volumes', '-t', '0', ...started.reverse()]);
});

export function runContainer(
  image: string,
  options: readonly string[],
  command: readonly string[] = [],
): string {
  const id = podman(['run', '--detach', ...options, image, ...command]);
  assert.match(id, /^[0-9a-f]{64}$/);
  started.push(id);
  return id;
}

/**
 * Each check starts a process in the container, so they are rare.
 * @param where options of podman's own: another storage
 */
export async function untilHealthy(
  container: string,
  page: string,
  where: readonly string[] = [],
): Promise<void> {
  const endMs = performance.now() + START_MS_MAX;
  while (tried([...where, 'exec', container, 'matting-healthcheck', page]).code !== 0) {
    const logs = () => tried([...where, 'logs', '--tail', '20', container]).output;
    assert.ok(performance.now() < endMs, `${page} is not 200: ${logs()}`);
    await delay(ASKED_EVERY_MS);
  }
}

/**
 * Without a network.
 * @param where as of `untilHealthy`
 */
export async function cutsTeapotOut(
  ending: Ending,
  image: string,
  where: readonly string[] = [],
): Promise<void> {
  const folder = await temporaryFolder(ending);
  chmodSync(folder, 0o777);
  copyFileSync(path.join(ROOT, 'docs/images/demo.jpg'), path.join(folder, 'teapot.jpg'));
  const options = [...LOCKED, '--volume', `${folder}:/pictures`];
  podman([...where, 'run', '--rm', ...options, image, 'cutout', 'teapot.jpg', '--out', 't.png']);
  await requireTeapot(readFileSync(path.join(folder, 't.png')));
}

/** In the container's Node; parses the printed JSON. */
export function evaluate<Value>(container: string, script: string): Value {
  const args = ['exec', container, 'node', '--input-type=module', '--eval', script];
  return JSON.parse(podman(args)) as Value;
}

export function stopContainer(container: string): number {
  podman(['stop', '-t', '150', container]);
  return Number(podman(['inspect', '--format', '{{.State.ExitCode}}', container]));
}
