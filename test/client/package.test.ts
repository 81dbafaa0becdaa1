/** The package as a release makes it, installed without a network. Needs: portal. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { cp, mkdir, readdir } from 'node:fs/promises';
import path from 'node:path';
import test from 'ava';
import { ARTIFACTS } from '../../deploy/release/artifacts.ts';
import { ROOT } from '../running-service.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { openClientHarness } from './client-harness.ts';
import { checkPackedCommand, installPacked } from './packed-command.ts';

test('the packed client brings its command, which cuts out and pays once', async t => {
  const folder = await temporaryFolder(t);
  const tree = path.join(folder, 'tree');
  const parts = ['package.json', 'tsconfig.json', 'README.md', 'LICENSE', 'src'];
  for (const part of ['tsconfig.json', ...parts.map(part => `client/${part}`)]) {
    await cp(path.join(ROOT, part), path.join(tree, part), { recursive: true });
  }
  const out = path.join(folder, 'out');
  await mkdir(out);
  const artifact = ARTIFACTS.find(({ name }) => name === 'client');
  await artifact?.make({ version: '', commit: '', epochS: '', tree, root: ROOT, out });
  const [tarball, ...others] = await readdir(out);
  assert.ok(tarball !== undefined && others.length === 0, `${others}`);
  const installed = await installPacked(path.join(out, tarball), path.join(folder, 'installed'));
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
