/**
 * Images that agents send before the call that names them. Replicas share an image only by its row:
 *
 * | state    | entered by                            | left by                           |
 * |----------|---------------------------------------|-----------------------------------|
 * | open     | create                                | received; ADDRESS_MS after create |
 * | received | received, once the blob is committed  | KEPT_MS after create              |
 * | over     | its time                              | removeOld, KEPT_MS after create   |
 *
 * KEPT_MS is far below the age at which the storage sweep removes blobs that no job names.
 */
import { hash, randomBytes, randomUUID } from 'node:crypto';
import type { KnownImage } from '@matting/core/submission/image-upload.ts';
import { type Database, query } from '@matting/database/database.ts';
import { isAsciiWord, isInserted, matchesOne, nowPlusMs } from '@matting/database/statements.ts';
import type {} from './tables.ts';

/** An agent uploads at once. The time is for a person who must confirm the upload. */
export const ADDRESS_MS = 600_000;
/** How long after `create` calls can use the image. */
export const KEPT_MS = 1_800_000;
/** At most 5 GB: a tenth of the inputs of an account's open jobs. */
export const UPLOADS_OF_ACCOUNT_MAX = 100;
/** 256 bits, since whoever knows the address may use it. */
const TOKEN_BYTES = 32;

type Owner = { readonly accountId: string; readonly apiKeyId: string };

export type UploadStore = ReturnType<typeof createUploadStore>;

export function createUploadStore(database: Database) {
  return {
    /** Undefined: the account has UPLOADS_OF_ACCOUNT_MAX. */
    create: (owner: Owner) => create(database, owner),
    findByToken: (token: string) => findByToken(database, token),
    /** False: another image came before, or the upload is over. */
    received: (id: string, blob: string, known: KnownImage) => received(database, id, blob, known),
    /**
     * Undefined: the key has no such upload, or its time is over. `blob` is null until an image
     * came. `known` is absent until then, and if an earlier release received the image.
     */
    findForKey: (apiKeyId: string, id: string) => findForKey(database, apiKeyId, id),
    removeOld: (size: number, removeBlob: (name: string) => Promise<void>) =>
      removeOld(database, size, removeBlob),
  };
}

async function create(database: Database, { accountId, apiKeyId }: Owner) {
  const id = randomUUID();
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  const upload = {
    account_id: accountId,
    api_key_id: apiKeyId,
    id,
    token_hash: hash('sha256', token, 'hex'),
  };
  return await query(database, async db => {
    // An attempt fails only if another call took its slot.
    for (let attempt = 0; attempt <= UPLOADS_OF_ACCOUNT_MAX; attempt += 1) {
      const rows = await db
        .selectFrom('mcp_uploads')
        .select(['id', 'slot', 'created_at'])
        .where('account_id', '=', accountId)
        .execute();
      const made = rows.find(row => row.id === id);
      if (made !== undefined) return { id, token, createdAtMs: made.created_at };
      const taken = new Set(rows.map(row => row.slot));
      let slot = 0;
      while (taken.has(slot)) slot += 1;
      if (slot >= UPLOADS_OF_ACCOUNT_MAX) return undefined;
      const values = { ...upload, slot, created_at: database.nowMs };
      await isInserted(db.insertInto('mcp_uploads').values(values).execute());
    }
    return undefined;
  });
}

async function findByToken(database: Database, token: string) {
  const row = await query(database, db =>
    db
      .selectFrom('mcp_uploads')
      .select(['id', 'account_id', 'api_key_id', 'blob', 'created_at'])
      .select(() => database.nowMs.as('read_at'))
      .where('token_hash', '=', hash('sha256', token, 'hex'))
      .executeTakeFirst(),
  );
  if (row === undefined) return undefined;
  const isOver = row.read_at - row.created_at >= ADDRESS_MS;
  const state = row.blob === null ? (isOver ? 'over' : 'open') : 'received';
  const owner = { accountId: row.account_id, apiKeyId: row.api_key_id };
  return { id: row.id, ...owner, state } as const;
}

function received(database: Database, id: string, blob: string, known: KnownImage) {
  return query(database, db =>
    matchesOne(
      db
        .updateTable('mcp_uploads')
        .set({ blob, known: JSON.stringify(known) })
        .where('id', '=', id)
        // This statement may be a repetition after a lost answer: then the blob is our own.
        .where(eb => eb.or([eb('blob', 'is', null), eb('blob', '=', blob)]))
        .where('created_at', '>', nowPlusMs(database.nowMs, -KEPT_MS)),
    ),
  );
}

async function findForKey(database: Database, apiKeyId: string, id: string) {
  if (!isAsciiWord(id)) return undefined;
  const row = await query(database, db =>
    db
      .selectFrom('mcp_uploads')
      .select(['blob', 'known'])
      .where('id', '=', id.toLowerCase())
      .where('api_key_id', '=', apiKeyId)
      .where('created_at', '>', nowPlusMs(database.nowMs, -KEPT_MS))
      .executeTakeFirst(),
  );
  if (row === undefined) return undefined;
  const known = row.known === null ? undefined : (JSON.parse(row.known) as KnownImage);
  return { blob: row.blob, known };
}

/** Removes blobs before rows: if a removal fails, the row still names its blob. */
async function removeOld(
  database: Database,
  size: number,
  removeBlob: (name: string) => Promise<void>,
): Promise<number> {
  const old = await query(database, db =>
    db
      .selectFrom('mcp_uploads')
      .select(['id', 'blob'])
      .where('created_at', '<=', nowPlusMs(database.nowMs, -KEPT_MS))
      .orderBy('created_at')
      .limit(size)
      .execute(),
  );
  for (const { id, blob } of old) {
    if (blob !== null) await removeBlob(blob);
    await query(database, db => db.deleteFrom('mcp_uploads').where('id', '=', id).execute());
  }
  return old.length;
}
