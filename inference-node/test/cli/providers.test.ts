/** What `providers check` says of libraries, on a package of stand-ins; nothing is run. */
import assert from 'node:assert/strict';
import { rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import { loadCliConfig } from '../../src/cli/config.ts';
import { providersCheck } from '../../src/cli/providers.ts';
import { runtimeVersion } from '../../src/engine/runtime-version.ts';
import { installProvider } from '../../src/providers/install-provider.ts';
import { sha256, wheelFile } from '../providers/fake-package.ts';

test('what cuDNN may open once it runs is named where it is missing, and fails no check', async context => {
  const folder = await temporaryFolder(context);
  const linked = ['libcublas.so.13', 'libcublasLt.so.13', 'libcudart.so.13', 'libcurand.so.10'];
  for (const name of [...linked, 'libcuda.so.1', 'libcudnn.so.9', 'libcudnn_graph.so.9']) {
    await writeFile(path.join(folder, name), '');
  }
  const wheel = wheelFile(runtimeVersion());
  const from = path.join(folder, 'own.whl');
  await writeFile(from, wheel);
  const providerDir = path.join(folder, 'providers');
  const childEnv = { PATH: '/nowhere', LD_LIBRARY_PATH: folder };
  const config = { ...loadCliConfig(), providerDir, childEnv };
  await installProvider({
    ...{ from, accepted: [sha256(wheel)], libraryFolders: [], ldLibraryPath: folder },
    providerDir,
  });
  const check = async () => {
    const out = new PassThrough();
    const sound = await providersCheck({ run: false }, config, out);
    out.end();
    return { sound, said: await text(out) };
  };
  const { sound, said } = await check();
  assert.equal(sound, true);
  for (const line of [
    'library   libnvrtc.so.13 is missing, libcudnn_graph.so.9 needs it: it comes with CUDA 13',
    'library   libcudnn_ops.so.9 is missing, libcudnn.so.9 needs it: it comes with cuDNN 9',
  ]) {
    assert.ok(said.includes(`${line}\n`), said);
  }
  await rm(path.join(folder, 'libcudnn.so.9'));
  assert.equal((await check()).sound, false);
});
