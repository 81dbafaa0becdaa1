/** As a release packs it, installed without a network. Needs: portal. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { cp, mkdir, readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { isNotTested } from '@matting/test-support/skip.ts';
import test from 'ava';
import { ARTIFACTS } from '../../deploy/release/artifacts.ts';
import { ROOT } from '../running-service.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { openClientHarness } from './client-harness.ts';
import { checkPackedCommand, installPacked, npm } from './packed-command.ts';

const run = promisify(execFile);

const folder = await temporaryFolder({ teardown: test.after.always });
let installed: string;

test.before(async () => {
  const tree = path.join(folder, 'tree');
  const parts = ['tsconfig.json', 'tsconfig.require.json', 'README.md', 'LICENSE', 'src'];
  const files = ['package.json', 'tsconfig.json', 'client/package.json'];
  for (const part of [...files, ...parts.map(part => `client/${part}`)]) {
    await cp(path.join(ROOT, part), path.join(tree, part), { recursive: true });
  }
  const out = path.join(folder, 'out');
  await mkdir(out);
  const artifact = ARTIFACTS.find(({ name }) => name === 'client');
  await artifact?.make({ version: '9.9.9', commit: '', epochS: '', tree, root: ROOT, out });
  const [tarball, ...others] = await readdir(out);
  assert.ok(tarball !== undefined && others.length === 0, `${others}`);
  installed = await installPacked(path.join(out, tarball), path.join(folder, 'installed'));
});

/** Each loads another part of the package. */
const PROGRAMS = {
  'load.mjs': `import { MattingError } from 'matting-client';
import { readImage } from 'matting-client/files';
import { verifyWebhook } from 'matting-client/webhooks';
console.log(typeof MattingError, typeof readImage, typeof verifyWebhook);`,
  'load.cjs': `const { MattingError } = require('matting-client');
const { readImage } = require('matting-client/files');
const { verifyWebhook } = require('matting-client/webhooks');
console.log(typeof MattingError, typeof readImage, typeof verifyWebhook);`,
};
const TYPED = `import { type Job, MattingClient, MattingError } from 'matting-client';
import { readImage } from 'matting-client/files';
import { verifyWebhook } from 'matting-client/webhooks';
export const matting = new MattingClient({ baseUrl: 'http://127.0.0.1', apiKey: 'mk_a' });
export async function cut(): Promise<Job | undefined> {
  // @ts-expect-error: the service has no such format
  await matting.cutOut({ image: await readImage('a.jpg'), output_format: 'gif' });
  const event = verifyWebhook('{}', {}, 'a'.repeat(24));
  return event.type === 'matting.job.failed' ? matting.job(event.job_id) : undefined;
}
export const isFull = (error: unknown) => error instanceof MattingError && error.status === 402;
`;

/** Another Node than the project's: the client supports both. */
async function installedNode(): Promise<string | undefined> {
  const folders = (process.env.PATH ?? '').split(path.delimiter);
  for (const folder of folders.filter(one => !one.includes('node_modules'))) {
    const node = path.join(folder, 'node');
    const { stdout } = await run(node, ['--version']).catch(() => ({ stdout: '' }));
    if (stdout.startsWith('v20.')) return node;
  }
  return undefined;
}

test('the packed client loads by import and by require, with its types', async t => {
  const node20 = await installedNode();
  isNotTested(node20 === undefined && 'the packed client on Node 20: none is in the PATH');
  for (const [name, text] of Object.entries(PROGRAMS)) {
    await writeFile(path.join(installed, name), text);
    for (const node of [process.execPath, ...(node20 === undefined ? [] : [node20])]) {
      const { stdout, stderr } = await run(node, [name], { cwd: installed });
      t.deepEqual([stdout, stderr], ['function function function\n', ''], `${name} on ${node}`);
    }
  }
  for (const name of ['typed.mts', 'typed.cts']) {
    await writeFile(path.join(installed, name), TYPED);
  }
  const tsc = path.join(ROOT, 'node_modules/typescript/bin/tsc');
  const strict = ['--noEmit', '--strict', '--target', 'es2022'];
  const lib = ['--lib', 'es2022,dom,dom.iterable', '--types', 'node'];
  const roots = ['--typeRoots', path.join(ROOT, 'node_modules/@types')];
  for (const [module, resolution, ...files] of [
    ['nodenext', 'nodenext', 'typed.mts', 'typed.cts'],
    ['node16', 'node16', 'typed.mts', 'typed.cts'],
    ['commonjs', 'bundler', 'typed.cts'],
  ]) {
    const modules = ['--module', `${module}`, '--moduleResolution', `${resolution}`];
    const compiled = run(
      process.execPath,
      [tsc, ...strict, ...modules, ...lib, ...roots, ...files],
      {
        cwd: installed,
      },
    );
    await t.notThrowsAsync(
      compiled.catch(({ stdout }) => Promise.reject(new Error(`${module}: ${stdout}`))),
    );
  }
});

test('npm packs no client that was not built', async t => {
  await t.throwsAsync(npm(['pack', '--dry-run'], path.join(ROOT, 'client')), {
    message: /must have name and version/,
  });
});

test('the packed client brings its command, which cuts out and pays once', async t => {
  const packages = await readdir(path.join(installed, 'node_modules'));
  t.deepEqual(
    packages.filter(name => !name.startsWith('.')),
    ['matting-client'],
  );
  const cutOut = randomBytes(300_000);
  const harness = await openClientHarness();
  const node = harness.serve(cutOut);
  try {
    await checkPackedCommand(process.execPath, installed, { harness, cutOut });
  } finally {
    await node.stop();
    await harness.close();
  }
});
