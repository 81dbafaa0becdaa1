/** Needs: portal. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { correctionOf, firstOf, succeedCorrection } from '@matting/core/test/families.ts';
import {
  assertBalanced,
  fundedAccount,
  HOUR_MS,
  newJob,
  resultOf,
  running,
  submitted,
  successOf,
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
    assert.ok(await stores.queue.succeed(claim, successOf(claim, { result, resultTtlMs: ttlMs })));
    await writeFile(fileOf(result.blob), 'cut-out');
    return { jobId: claim.jobId, file: fileOf(result.blob) };
  }

  const available = async () => (await stores.ledger.balances(account))?.available;

  test('gives the credit of a lost result back once', async t => {
    t.teardown(cleanUp);
    await prepare();
    const [gone, back, ended] = [await succeeded(), await succeeded(), await succeeded(-1)];
    await succeeded(2 * HOUR_MS);
    for (const { file } of [gone, ended]) await unlink(file);
    const counts = { looked: 1, found: 1, repaid: 1, unpaid: 0, correcting: 0 };
    t.deepEqual(await json(gone.jobId, '--dry-run'), { dry_run: true, ...counts });
    t.is(await available(), 16, 'a dry run grants nothing');
    t.deepEqual(await json(gone.jobId), { dry_run: false, ...counts });
    for (const also of [[], ['--dry-run']]) {
      t.is((await json(gone.jobId, ...also)).repaid, 0, 'it was paid');
    }
    t.like(await json(back.jobId), { looked: 1, found: 0, repaid: 0 });
    for (const jobId of [ended.jobId, randomUUID()]) {
      t.regex((await run(jobId)).err, /no result with a valid link.*credits grant/);
    }
    for (const wrong of [[], [gone.jobId, '--all-missing']]) {
      t.regex((await run(...wrong)).err, /name the job, or add --all-missing/);
    }
    t.is(await available(), 17);
    const reference = `lost:${gone.jobId}`;
    const [entry] = await stores.ledger.list(account, { kind: 'grant', limit: 10 });
    t.is(entry?.reference, reference);
    const said = await stores.audit.list(account, { limit: 10 });
    t.deepEqual(
      said.map(({ action, subject }) => [action, subject]),
      [['credits.granted', reference]],
    );
    await assertBalanced(stores, account);
  });

  test('pays what 0.3.0 found and did not pay, and nothing that it paid', async t => {
    t.teardown(cleanUp);
    await prepare();
    const [found, paid] = [await succeeded(), await succeeded()];
    await succeeded(2 * HOUR_MS);
    for (const [{ jobId, file }, settled] of [
      [found, {}],
      [paid, { settlement: 'paid', settled_at: 1 }],
    ] as const) {
      const row = { finding_id: jobId, found_by: 'look', found_at: 1, ...settled } as const;
      const values = { job_id: jobId, account_id: account, ...row };
      await database.kysely.insertInto('lost_results').values(values).execute();
      await unlink(file);
    }
    t.like(await json('--all-missing'), { looked: 3, found: 2, repaid: 1 });
    t.like(await json('--all-missing'), { found: 2, repaid: 0 });
    t.is(await available(), 18);
  });

  test('looks for the file of every live result, and says how many are missing', async t => {
    t.teardown(cleanUp);
    await prepare();
    for (let count = 0; count < 4; count += 1) await unlink((await succeeded()).file);
    await succeeded(2 * HOUR_MS);
    t.like(await json('--all-missing', '--dry-run'), { looked: 5, found: 4, repaid: 4 });
    const { out } = await run('--all-missing');
    t.regex(out, /^5 results checked, 4 missing\n4 credits returned\n/);
    t.is(await available(), 19);
    t.is((await json('--all-missing')).repaid, 0);
    await assertBalanced(stores, account);
  });

  test('pays nothing if the newest result is missing, too, unless it is told so', async t => {
    t.teardown(cleanUp);
    await prepare();
    const results = [await succeeded(), await succeeded(), await succeeded()];
    const right = storage;
    t.teardown(() => rm(right, { recursive: true }));
    // A service's empty storage, after its first start.
    storage = await mkdtemp(path.join(tmpdir(), 'repay-other-'));
    await openDirectoryBlobStore(storage);
    for (const which of [['--all-missing'], ['--all-missing', '--dry-run'], [results[0]!.jobId]]) {
      const { code, out, err } = await run(...which);
      t.deepEqual([code, out], [1, '']);
      t.regex(err, /newest result is missing.*mounted.*MATTING_STORAGE_URL.*--even-most/s);
    }
    t.is(await available(), 17);
    t.is((await json('--all-missing', '--even-most')).repaid, 3);
    t.is(await available(), 20);
    await assertBalanced(stores, account);
  });

  test('a correction cost nothing, and keeps its first job from being paid back while its file is there', async t => {
    t.teardown(cleanUp);
    await prepare();
    const caller = await stores.apiKeys.create(account, 'corrects');
    const first = await firstOf(stores, account, { apiKeyId: caller.key.id });
    const correction = await succeedCorrection(
      stores,
      await submitted(stores, correctionOf(first)),
    );
    await writeFile(fileOf(correction.result!.blob), 'cut-out');
    await succeeded(48 * HOUR_MS);
    const before = await available();
    t.like(await json(first.id), { found: 1, repaid: 0, unpaid: 1 });
    await unlink(fileOf(correction.result!.blob));
    t.like(await json(correction.id), { found: 1, repaid: 0, unpaid: 1 });
    t.is(await available(), before);
    t.like(await json(first.id), { found: 1, repaid: 1, unpaid: 0 });
    t.is(await available(), before! + 1);
    await assertBalanced(stores, account);
  });

  test('gives nothing back while the storage is not there', async t => {
    t.teardown(cleanUp);
    await prepare();
    const { jobId } = await succeeded();
    await rm(path.join(storage, 'results'), { recursive: true });
    const { code, err } = await run(jobId);
    t.not(code, 0);
    t.regex(err, /results is missing; .*mounted/);
    t.is(await available(), 19);
    await mkdir(path.join(storage, 'results'));
  });
});
