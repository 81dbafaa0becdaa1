import { randomUUID } from 'node:crypto';
import { fundedCaller, storeFixtures } from '@matting/core/test/fixtures.ts';
import ava from 'ava';
import { mcp } from './mcp.ts';
import { ADDRESS_MS, createUploadStore, KEPT_MS, UPLOADS_OF_ACCOUNT_MAX } from './upload-store.ts';

const KNOWN = {
  sha256: 'a'.repeat(64),
  image: { bytes: 3, format: 'avif', width: null, height: null },
} as const;

const { onStores } = storeFixtures({
  packages: [mcp],
  more: database => ({ uploads: createUploadStore(database) }),
});

onStores(ava.serial, 'uploads', (test, { stores, database, replica }) => {
  const other = replica();

  const age = (id: string, ms: number) =>
    database.kysely
      .updateTable('mcp_uploads')
      .set(eb => ({ created_at: eb('created_at', '-', ms) }))
      .where('id', '=', id)
      .execute();

  test('that two replicas make at the same time stay within the account’s limit', async t => {
    const { accountId, apiKeyId } = await fundedCaller(stores, 0);
    const made = await Promise.all(
      Array.from({ length: UPLOADS_OF_ACCOUNT_MAX + 4 }, (_, index) =>
        (index % 2 === 0 ? stores : other).uploads.create({ accountId, apiKeyId }),
      ),
    );
    const ids = made.flatMap(one => one?.id ?? []);
    t.is(new Set(ids).size, UPLOADS_OF_ACCOUNT_MAX);
    await age(ids[0]!, KEPT_MS);
    t.is(await stores.uploads.removeOld(1000, async () => undefined), 1);
    t.truthy(await stores.uploads.create({ accountId, apiKeyId }));
  });

  test('take one image, told twice or not, until they are over', async t => {
    const owner = await fundedCaller(stores, 0);
    const { id, token } = (await stores.uploads.create(owner))!;
    t.deepEqual(await other.uploads.findForKey(owner.apiKeyId, id), {
      blob: null,
      known: undefined,
    });
    t.is((await other.uploads.findByToken(token))?.state, 'open');
    t.true(await stores.uploads.received(id, 'inputs/a', KNOWN));
    t.true(await stores.uploads.received(id, 'inputs/a', KNOWN), 'its answer was lost');
    t.false(await other.uploads.received(id, 'inputs/b', KNOWN));
    t.is((await other.uploads.findByToken(token))?.state, 'received');
    t.deepEqual(await other.uploads.findForKey(owner.apiKeyId, id), {
      blob: 'inputs/a',
      known: KNOWN,
    });
    for (const [key, name] of [
      [randomUUID(), id],
      [owner.apiKeyId, randomUUID()],
      [owner.apiKeyId, 'ü'],
    ] as const) {
      t.is(await stores.uploads.findForKey(key, name), undefined);
    }
    const late = (await stores.uploads.create(owner))!;
    await age(late.id, ADDRESS_MS);
    t.is((await stores.uploads.findByToken(late.token))?.state, 'over');
    await age(late.id, KEPT_MS);
    t.false(await stores.uploads.received(late.id, 'inputs/c', KNOWN));
  });

  test('are removed after their files, and stay where a file does', async t => {
    const owner = await fundedCaller(stores, 0);
    const { id } = (await stores.uploads.create(owner))!;
    await stores.uploads.received(id, 'inputs/d', KNOWN);
    const removed: string[] = [];
    const sweep = () => stores.uploads.removeOld(1000, async name => void removed.push(name));
    await sweep();
    t.deepEqual(removed, []);
    await age(id, KEPT_MS);
    const away = async () => await Promise.reject(new Error('away'));
    await t.throwsAsync(stores.uploads.removeOld(1000, away), { message: 'away' });
    t.true((await sweep()) > 0);
    t.deepEqual(removed, ['inputs/d']);
    t.is(await sweep(), 0);
  });
});
