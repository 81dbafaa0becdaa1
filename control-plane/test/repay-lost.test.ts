/** `matting credits repay-lost`: what it gives back, and what it takes for lost. Needs: portal. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import {
  assertBalanced,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  resultOf,
  running,
} from '@matting/core/test/fixtures.ts';
import { openDirectoryBlobStore } from '@matting/storage/directory-store.ts';
import ava from 'ava';
import { onStores } from './every-store.ts';
import { runCli } from './programs.ts';

const test = ava.serial;

onStores(test, 'lost results', (test, { databases, database, stores }) => {
  let storage: string;
  let account: string;

  const prepare = async () => {
    storage = await mkdtemp(path.join(tmpdir(), 'repay-'));
    await openDirectoryBlobStore(storage);
    account = await fundedAccount(stores, 20);
    await database.kysely.deleteFrom('lost_results').execute();
    await database.kysely
      .updateTable('jobs')
      .set({ result_blob: null, result_blob_expires_at: null })
      .where('result_blob', 'is not', null)
      .execute();
  };
  const cleanUp = () => rm(storage, { recursive: true });

  const run = (...args: string[]) =>
    runCli(
      {
        MATTING_DATABASE_URL: databases.url(),
        MATTING_STORAGE_URL: pathToFileURL(storage).href,
        MATTING_DATA_DIR: storage,
      },
      'credits',
      'repay-lost',
      ...args,
    );

  async function json(...args: string[]) {
    const { code, out, err } = await run(...args, '--json');
    assert.equal(code, 0, err);
    return JSON.parse(out);
  }

  const fileOf = (blob: string) => path.join(storage, blob);

  async function succeeded(ttlMs = HOUR_MS) {
    const { claim } = await running(stores, newJob(account));
    const result = resultOf(claim);
    assert.ok(await stores.queue.succeed(claim, result, ttlMs, {}));
    await writeFile(fileOf(result.blob), 'cut-out');
    return { jobId: claim.jobId, file: fileOf(result.blob) };
  }

  async function found(result: { readonly jobId: string }): Promise<void> {
    const loss = { jobId: result.jobId, accountId: account };
    assert.ok(await stores.lostResults.record(loss, 'download', result.jobId));
  }

  const available = async () => (await stores.ledger.balances(account))?.available;

  test('gives each credit back once, and leaves what came back', async t => {
    t.teardown(cleanUp);
    await prepare();
    const [gone, back, ended] = [await succeeded(), await succeeded(), await succeeded(-1)];
    await succeeded();
    for (const result of [gone, back, ended]) await found(result);
    for (const { file } of [gone, ended]) await unlink(file);
    const nothing = { correcting: 0, looked: 0, found: 0 };
    const dry = { dry_run: true, repaid: 2, returned: 1, unpaid: 0, ...nothing };
    t.deepEqual(await json('--dry-run'), dry);
    t.is(await available(), 16, 'a dry run grants nothing');
    const wet = { dry_run: false, repaid: 2, returned: 1, unpaid: 0, ...nothing };
    t.deepEqual(await json(), wet);
    t.deepEqual(await json(), { ...wet, repaid: 0, returned: 0 });
    t.is(await available(), 18);
    const entries = await stores.ledger.list(account, { kind: 'grant', limit: 10 });
    const references = entries.map(({ reference }) => reference).filter(one => one !== 'first');
    const due = [gone, ended].map(({ jobId }) => `lost:${jobId}`);
    t.deepEqual(references.sort(), due.sort());
    const said = await stores.audit.list(account, { limit: 10 });
    t.deepEqual(said.map(({ action, subject }) => `${action} ${subject}`).sort(), [
      ...due.map(reference => `credits.granted ${reference}`),
    ]);
    t.is(await stores.lostResults.repay(gone.jobId, randomUUID()), 'settled');
    await assertBalanced(stores, account);
    // Gone once more: found again, and due.
    await unlink(back.file);
    await found({ jobId: back.jobId });
    t.is((await json()).repaid, 1);
    t.is(await available(), 19);
  });

  test('takes all that is gone for lost where it is told so, and says how many', async t => {
    t.teardown(cleanUp);
    await prepare();
    const results = [];
    for (let count = 0; count < 4; count += 1) results.push(await succeeded());
    for (const { file } of results) await unlink(file);
    await succeeded(2 * HOUR_MS);
    const dry = await json('--all-missing', '--dry-run');
    t.deepEqual([dry.looked, dry.found, dry.repaid], [5, 4, 4]);
    t.is((await json('--dry-run')).repaid, 0, 'a dry run leaves no row');
    const { out } = await run('--all-missing');
    t.regex(out, /^5 results checked, 4 missing\n4 credits returned\n/);
    t.is(await available(), 19);
    // Results on record as lost are not found again.
    t.is((await json('--all-missing')).found, 0);
    await assertBalanced(stores, account);
  });

  test('takes results of a storage without the newest for lost only where it is told so once more', async t => {
    t.teardown(cleanUp);
    await prepare();
    for (let count = 0; count < 3; count += 1) await succeeded();
    const right = storage;
    t.teardown(() => rm(right, { recursive: true }));
    // The folders of a storage in which a service has started once, and no file.
    storage = await mkdtemp(path.join(tmpdir(), 'repay-other-'));
    await openDirectoryBlobStore(storage);
    for (const also of [[], ['--dry-run']]) {
      const { code, out, err } = await run('--all-missing', ...also);
      t.deepEqual([code, out], [1, '']);
      t.regex(err, /newest result is missing.*mounted.*MATTING_STORAGE_URL.*--even-most/s);
    }
    t.is((await json()).repaid, 0, 'nothing is on record');
    t.is(await available(), 17);
    t.is((await run('--even-most')).code, 1, 'alone it says nothing');
    t.is((await json('--all-missing', '--even-most')).repaid, 3);
    t.is(await available(), 20);
    await assertBalanced(stores, account);
  });

  test('gives nothing back for what cost nothing', async t => {
    t.teardown(cleanUp);
    await prepare();
    const { claim } = await running(stores, newJob(account));
    t.truthy(await stores.queue.fail(claim, IMAGE_FAULT));
    await found(claim);
    const { repaid, unpaid } = await json();
    t.deepEqual([repaid, unpaid, await available()], [0, 1, 20]);
  });

  test('gives nothing back while the storage is not there', async t => {
    t.teardown(cleanUp);
    await prepare();
    const gone = await succeeded();
    await found(gone);
    await rm(path.join(storage, 'results'), { recursive: true });
    const { code, err } = await run();
    t.not(code, 0);
    t.regex(err, /results is missing; .*mounted/);
    t.is(await available(), 19);
    await mkdir(path.join(storage, 'results'));
  });
});
