/** `matting-remove` from an installed package, on a given Node. Needs: portal. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { type ClientHarness, newPicture } from './client-harness.ts';

const run = promisify(execFile);
const TIMEOUT_MS = 60_000;

export async function npm(args: readonly string[], cwd: string): Promise<string> {
  const home = path.dirname(process.execPath);
  const env = { ...process.env, PATH: `${home}:${process.env.PATH}` };
  const { stdout } = await run('npm', [...args, '--loglevel=error'], { cwd, env });
  return stdout;
}

/** @returns the folder; everything comes from the tarball, without a network */
export async function installPacked(tarball: string, folder: string): Promise<string> {
  await mkdir(folder);
  await writeFile(path.join(folder, 'package.json'), '{"private":true,"type":"module"}');
  await npm(['install', '--offline', '--no-audit', '--no-fund', tarball], folder);
  return folder;
}

/**
 * Cuts pictures out twice and loses an answer: each costs one credit.
 * @param node found through PATH by the command's first line
 * @param cutOut what the harness serves
 */
export async function checkPackedCommand(
  node: string,
  installed: string,
  { harness, cutOut }: { readonly harness: ClientHarness; readonly cutOut: Buffer },
): Promise<void> {
  const available = async () => (await harness.client.account()).credits.available;
  const env = { PATH: path.dirname(node), MATTING_API_KEY: harness.app.token };
  const command = path.join(installed, 'node_modules/.bin/matting-remove');
  const start = (...args: string[]) =>
    run(command, args, { cwd: installed, env, timeout: TIMEOUT_MS });
  const { version } = JSON.parse(
    await readFile(path.join(installed, 'node_modules/matting-client/package.json'), 'utf8'),
  );
  assert.equal((await start('--version')).stdout, `${version}\n`);
  const photos = path.join(installed, 'photos');
  await mkdir(photos, { recursive: true });
  for (const name of ['a.png', 'b.png']) await writeFile(path.join(photos, name), newPicture());
  const before = await available();
  harness.proxy.faults = ['pass', 'lose'];
  const args = ['photos', '--to', 'out', '--url', harness.proxy.url, '--concurrency', '1'];
  const first = await start(...args);
  harness.proxy.clear();
  assert.equal(first.stdout, 'matting: 2 cut out (2 jobs)\n');
  assert.equal((await start(...args)).stdout, 'matting: 0 cut out (0 jobs), 2 already there\n');
  assert.equal(before - (await available()), 2);
  for (const name of ['a.png', 'b.png']) {
    const result = await readFile(path.join(installed, 'out/photos', name));
    assert.ok(cutOut.equals(result), name);
  }
  const refused = start('photos', '--to', 'out', '--format', 'gif');
  await assert.rejects(refused, { code: 64, stderr: /^matting: --format must be one of/ });
}
