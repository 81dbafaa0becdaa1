/** Needs: object-storage, operations. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import {
  GetBucketLifecycleConfigurationCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutBucketLifecycleConfigurationCommand,
} from '@aws-sdk/client-s3';
import type { Env } from '@matting/core/test/support/cli.ts';
import { openStorage } from '@matting/object-storage/test/open-storage.ts';
import { moveBlobs } from '@matting/operations/storage/move-blobs.ts';
import { openDirectoryBlobStore } from '@matting/storage/directory-store.ts';
import { joinBlobStores } from '@matting/storage/open-storage.ts';
import { get, list, put } from '@matting/storage/test/blob-store.contract.ts';
import { groupIf } from '@matting/test-support/database.ts';
import { type Fault, FaultProxy } from '@matting/test-support/object-storage/fault-proxy.ts';
import {
  missingStore,
  OBJECT_STORES,
  useObjectStore,
} from '@matting/test-support/object-storage/object-store.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava, { type ExecutionContext } from 'ava';
import { runCli } from './programs.ts';

const test = ava.serial;

const HOUR_MS = 3_600_000;

const run = (env: Env, ...args: string[]) => runCli(env, 'storage', ...args);

const directory = await temporaryFolder({ teardown: test.after.always });

test('storage check of a directory › passes where it can be written, and leaves nothing', async t => {
  const root = path.join(directory, 'good');
  await openDirectoryBlobStore(root);
  const { code, out } = await run({ MATTING_STORAGE_URL: `file://${root}` }, 'check');
  t.is(code, 0, out);
  for (const kind of await readdir(root)) {
    t.deepEqual(await readdir(path.join(root, kind)), []);
  }
});

test('storage check of a directory › says what fails, with exit code 1', async t => {
  const env = { MATTING_STORAGE_URL: 'file:///proc/no/directory' };
  const { code, out, err } = await run(env, 'check');
  t.is(code, 1);
  t.regex(out, /^FAIL {2}open: \/proc\/no\/directory does not exist; /m);
  t.regex(err, /failed 1 of 1/);
});

test('storage check of a directory › has no lifecycle', async t => {
  const { code, err } = await run({ MATTING_STORAGE_URL: `file://${directory}` }, 'lifecycle');
  t.is(code, 1);
  t.regex(err, /lifecycle rules/);
});

for (const kind of OBJECT_STORES) {
  const group = groupIf(missingStore(kind) === false, test, `the storage commands: ${kind}`);
  const store = useObjectStore(group, kind);
  let proxy: FaultProxy;

  group.before(async () => {
    proxy = await FaultProxy.start(store.endpoint);
  });
  group.after.always(() => proxy?.close());

  const env = (prefix = 'of/matting') => ({
    MATTING_STORAGE_URL: store.url({ prefix, endpoint: proxy.endpoint }),
  });
  const requireEmpty = async (prefix: string) => {
    const place = { Bucket: store.bucket, Prefix: prefix };
    const { Contents = [] } = await store.client.send(new ListObjectsV2Command(place));
    assert.deepEqual(Contents, []);
    const uploads = await store.client.send(new ListMultipartUploadsCommand(place));
    assert.deepEqual(uploads.Uploads ?? [], []);
  };

  group('check passes, and leaves nothing', async t => {
    const { code, out } = await run(env('checked'), 'check', '--json');
    t.is(code, 0, out);
    const { ok, findings } = JSON.parse(out);
    assert.ok(ok);
    t.true(findings.length >= 12);
    await requireEmpty('checked');
  });

  const denied: Fault = { kind: 'answer', status: 403, code: 'AccessDenied' };
  const wrong: readonly [what: string, fault: Fault, match: object, fails: RegExp][] = [
    ['rights to write', denied, { method: 'PUT' }, /^FAIL {2}write: .*s3:PutObject$/m],
    ['rights to list', denied, { url: /list-type/ }, /^FAIL {2}list: .*s3:ListBucket$/m],
    [
      'rights to end uploads',
      denied,
      { url: /[?&]uploads/, method: 'GET' },
      /^FAIL {2}list and end unfinished uploads: .*s3:AbortMultipartUpload$/m,
    ],
    ['ranges', { kind: 'corrupt-answer' }, { method: 'GET', url: /GetObject/ }, /^FAIL {2}range/m],
    [
      'the clock',
      { kind: 'clock', offMs: 600_000 },
      { url: /list-type/ },
      /^FAIL {2}clock: the storage's clock is \d+ s ahead of this machine's$/m,
    ],
    [
      'a store that ignores conditions',
      { kind: 'answer', status: 200, code: 'none' },
      { method: 'PUT', url: /results\/check-[^?]*\?x-id=PutObject/ },
      /^FAIL {2}conditional write: If-None-Match: \* was not heeded/m,
    ],
  ];
  for (const [what, fault, match, fails] of wrong) {
    group(`check names ${what}`, async t => {
      proxy.inject(fault, match);
      const { code, out, err } = await run(env('wrong'), 'check');
      proxy.liftAll();
      t.is(code, 1, out);
      t.regex(out, fails);
      t.regex(err, /the storage failed \d+ of \d+/);
      await requireEmpty('wrong');
    });
  }

  group('lifecycle prints a rule that outlives what is kept', async t => {
    const { code, out } = await run(env(), 'lifecycle', '--result-days', '3');
    t.is(code, 0);
    const { Rules } = JSON.parse(out);
    const daysOf = (prefix: string) =>
      Rules.find((rule: { Filter: { Prefix: string } }) => rule.Filter.Prefix === prefix)
        ?.Expiration.Days;
    t.true(daysOf('of/matting/results/') >= 5);
    // Inputs for corrections can be kept as long as results.
    t.true(daysOf('of/matting/inputs/') >= 5);
    const byDefault = JSON.parse((await run(env(), 'lifecycle')).out);
    t.true(byDefault.Rules.length === Rules.length);
    t.is((await run(env(), 'lifecycle', '--result-days', '0')).code, 64);
  });

  test.skipIf(Boolean(missingStore(kind) || kind !== 'minio'))(
    `the storage commands: ${kind} › lifecycle rules are taken by a bucket`,
    async t => {
      const LifecycleConfiguration = JSON.parse((await run(env(), 'lifecycle')).out);
      const place = { Bucket: store.bucket };
      await store.client.send(
        new PutBucketLifecycleConfigurationCommand({ ...place, LifecycleConfiguration }),
      );
      const kept = await store.client.send(new GetBucketLifecycleConfigurationCommand(place));
      const idsOf = (rules: readonly { ID?: string | undefined }[]) =>
        rules.map(({ ID }) => ID).sort();
      t.deepEqual(idsOf(kept.Rules ?? []), idsOf(LifecycleConfiguration.Rules));
      const results = kept.Rules?.find(({ ID }) => ID === 'matting-results');
      t.is(results?.Filter?.Prefix, 'of/matting/results/');
      t.is(results?.Expiration?.Days, 3);
    },
  );

  group('migrate copies, proves, and removes when it is told', async t => {
    const root = path.join(directory, `moved-${kind}`);
    const from = await openStorage(root);
    const blobs = new Map<string, Buffer>();
    for (let n = 0; n < 12; n += 1) {
      const name = `${['inputs', 'backgrounds', 'results'][n % 3]}/job-${n}`;
      // The last one goes in parts.
      const bytes = randomBytes(n === 11 ? 9_000_000 : n * 1000);
      blobs.set(name, bytes);
      const writer = await from.createWriter(name);
      await writer.write(bytes);
      await writer.commit();
    }
    const unfinished = await from.createWriter('inputs/unfinished');
    const url = store.url({ prefix: 'moved', endpoint: proxy.endpoint });
    proxy.inject(denied, { method: 'PUT', url: /results\/job-2\?/ });
    const broken = await run({}, 'migrate', root, url);
    proxy.liftAll();
    t.is(broken.code, 1);
    t.regex(broken.out, /^FAIL {2}results\/job-2: /m);
    const again = JSON.parse((await run({}, 'migrate', root, url, '--json')).out);
    t.deepEqual([again.copied, again.alreadyThere, again.complete], [1, 11, true]);
    const last = JSON.parse((await run({}, 'migrate', root, url, '--remove', '--json')).out);
    t.deepEqual([last.copied, last.removed, last.complete], [0, 12, true]);
    const to = await openStorage(url);
    for (const [name, bytes] of blobs) {
      const pieces: Buffer[] = [];
      for await (const piece of await to.openRead(name)) pieces.push(piece as Buffer);
      t.true(bytes.equals(Buffer.concat(pieces)), name);
      t.is(await from.stat(name), undefined);
    }
    await unfinished.abort();
    // The second move goes back.
    const back = JSON.parse((await run({}, 'migrate', url, root, '--remove', '--json')).out);
    t.deepEqual([back.copied, back.removed, back.complete], [12, 12, true]);
    t.deepEqual(await from.stat('results/job-11'), { bytes: 9_000_000 });
  });

  group('migrate leaves alone what has other bytes', async t => {
    const root = path.join(directory, `other-${kind}`);
    const url = store.url({ prefix: 'other' });
    for (const [place, text] of [
      [root, 'here'],
      [url, 'else'],
    ] as const) {
      const writer = await (await openStorage(place)).createWriter('results/same');
      await writer.write(Buffer.from(text));
      await writer.commit();
    }
    const { code, out } = await run({}, 'migrate', root, url, '--remove');
    t.is(code, 1);
    t.regex(out, /^FAIL {2}results\/same: results\/same has other bytes/m);
    t.deepEqual(await (await openStorage(root)).stat('results/same'), { bytes: 4 });
    t.is((await run({}, 'migrate', root, root)).code, 1);
  });
}

async function openTwo(t: ExecutionContext) {
  const root = await temporaryFolder(t);
  const first = await openStorage(path.join(root, 'first'));
  return { root, first, second: await openStorage(path.join(root, 'second')) };
}

test('moving between directories › what a service writes and removes meanwhile does not disturb', async t => {
  const { first, second, root } = await openTwo(t);
  for (let n = 0; n < 40; n += 1) await put(second, `results/job-${n}`, `bytes of ${n}`);
  let done = 0;
  const summary = await moveBlobs(second, first, {
    onProgress: () => {
      done += 1;
      // One service removes expired files, and one still writes here.
      if (done % 5 === 0) void joinBlobStores(first, second).remove(`results/job-${39 - done / 5}`);
      if (done === 10) void put(second, 'results/late', 'late');
    },
  });
  assert.ok(summary.complete);
  t.is(summary.failures.length, 0);
  t.is(String(await get(first, 'results/late')), 'late');
  t.deepEqual(await readdir(path.join(root, 'first', 'tmp')), []);
});

test('moving between directories › ends when it is told, and goes on later', async t => {
  const { first, second } = await openTwo(t);
  for (let n = 0; n < 40; n += 1) await put(second, `results/job-${n}`, `bytes of ${n}`);
  const ending = new AbortController();
  const cut = await moveBlobs(second, first, {
    remove: true,
    signal: ending.signal,
    onProgress: ({ copied }) => {
      if (copied >= 10) ending.abort();
    },
  });
  t.false(cut.complete);
  const rest = await moveBlobs(second, first, { remove: true });
  assert.ok(rest.complete);
  t.is(cut.removed + rest.removed, 40);
  t.is((await list(first, -HOUR_MS)).length, 40);
});
