/**
 * From the configuration or, with SQLite, from a file next to the database. A canary row stops a
 * replica with another key, whose secrets the others could not open.
 */

import { randomBytes, randomUUID } from 'node:crypto';
import { link, readFile, unlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { type Database, query } from '@matting/database/database.ts';
import { isInserted } from '@matting/database/statements.ts';
import { makeDirectory, whyUnreadable } from '@matting/program/files.ts';
import { SecretBox } from './secret-box.ts';

interface SecretsCanary {
  readonly keyId: string;
  readonly ciphertext: Uint8Array;
}

type SecretsCanaryStore = ReturnType<typeof createSecretsCanaryStore>;

const CANARY_ID = 'canary';

export function createSecretsCanaryStore(database: Database) {
  const read = () =>
    query(database, db =>
      db
        .selectFrom('secrets_canary')
        .select(['key_id as keyId', 'ciphertext'])
        .where('id', '=', CANARY_ID)
        .executeTakeFirst(),
    );
  return {
    /** Undefined: no control plane has started on this database yet. */
    async find(): Promise<SecretsCanary | undefined> {
      const row = await read();
      return row && canaryOf(row);
    },
    /** Does nothing if the canary is another key's. */
    async replace(keyId: string, canary: SecretsCanary): Promise<void> {
      await query(database, db =>
        db
          .updateTable('secrets_canary')
          .set({ key_id: canary.keyId, ciphertext: canary.ciphertext })
          .where('id', '=', CANARY_ID)
          .where('key_id', '=', keyId)
          .execute(),
      );
    },
    /** Returns the candidate only if there was no canary. */
    async establish(candidate: SecretsCanary): Promise<SecretsCanary> {
      let row = await read();
      if (row === undefined) {
        const { keyId, ciphertext } = candidate;
        const values = { id: CANARY_ID, key_id: keyId, ciphertext, created_at: database.nowMs };
        // If another replica was first, its canary stays.
        await isInserted(
          query(database, db => db.insertInto('secrets_canary').values(values).execute()),
        );
        row = await read();
      }
      if (row === undefined) throw new Error('the secrets canary vanished');
      return canaryOf(row);
    },
  };
}

function canaryOf({ keyId, ciphertext }: SecretsCanary): SecretsCanary {
  return { keyId, ciphertext: new Uint8Array(ciphertext) };
}

export const SECRETS_KEY_FILE = 'secrets.key';
const CANARY_TEXT = 'matting-secrets-canary';
/** The canary belongs to the whole database; every other secret is bound to a row. */
const CANARY_BINDING = '';

/** The message is for the operator and reveals nothing of the key. */
export class SecretsKeyError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'SecretsKeyError';
  }
}

export function parseSecretsKey(text: string): Buffer | undefined {
  if (/^[0-9a-f]{64}$/i.test(text)) return Buffer.from(text, 'hex');
  if (/^[A-Za-z0-9+/]{43}=?$/.test(text)) return Buffer.from(text, 'base64');
  return undefined;
}

/** Created on the first call; two processes at once get the same key. @throws SecretsKeyError */
export async function loadOrCreateSecretsKey(dataDir: string): Promise<Buffer> {
  const file = path.join(dataDir, SECRETS_KEY_FILE);
  return await orRefused(`${file} cannot be read or made`, async () => {
    makeDirectory(dataDir, 0o700);
    return (await readKey(file)) ?? (await createKey(file));
  });
}

/** @throws SecretsKeyError */
export async function readSecretsKey(dataDir: string): Promise<Buffer | undefined> {
  const file = path.join(dataDir, SECRETS_KEY_FILE);
  return await orRefused(`${file} cannot be read`, () => readKey(file));
}

async function orRefused<T>(refusal: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof SecretsKeyError) throw error;
    throw new SecretsKeyError(`${refusal} (${whyUnreadable(error)})`, error);
  }
}

async function createKey(file: string): Promise<Buffer> {
  const temporary = `${file}.${randomUUID()}`;
  const key = `${randomBytes(32).toString('hex')}\n`;
  await writeFile(temporary, key, { flag: 'wx', mode: 0o600, flush: true });
  try {
    // Unlike a rename, a link fails if another process was first; that one's key then stays.
    await link(temporary, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    await unlink(temporary);
  }
  return requireKey(file, await readFile(file, 'utf8'));
}

async function readKey(file: string): Promise<Buffer | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  return requireKey(file, text);
}

function requireKey(file: string, text: string): Buffer {
  const key = parseSecretsKey(text.trim());
  if (key !== undefined) return key;
  throw new SecretsKeyError(`${file} does not hold a key: 64 hexadecimal digits are expected`);
}

/**
 * Establishes the database's canary, or proves this key against it. Replaces a canary of the
 * previous key by one of this key; a replica that has only the previous key then does not start.
 * @throws SecretsKeyError: the database was used with another key
 */
export async function requireSameSecretsKey(
  store: Pick<SecretsCanaryStore, 'establish' | 'replace'>,
  key: Uint8Array,
  previous?: Uint8Array,
): Promise<void> {
  const box = new SecretBox(key);
  const mine = { keyId: box.keyId, ciphertext: box.seal(Buffer.from(CANARY_TEXT), CANARY_BINDING) };
  const canary = await store.establish(mine);
  if (requireKeyOf(canary, key, previous) === 'previous') await store.replace(canary.keyId, mine);
}

/** @throws SecretsKeyError: another key made the canary */
export function requireKeyOf(
  canary: SecretsCanary,
  key: Uint8Array,
  previous?: Uint8Array,
): 'same' | 'previous' {
  if (proves(new SecretBox(key), canary)) return 'same';
  if (previous !== undefined && proves(new SecretBox(previous), canary)) return 'previous';
  throw new SecretsKeyError(
    'MATTING_SECRETS_KEY is not the key this database was last used with; replicas share one, ' +
      'and MATTING_SECRETS_KEY_PREVIOUS names the one before it while keys are changed',
  );
}

function proves(box: SecretBox, { keyId, ciphertext }: SecretsCanary): boolean {
  const opened = box.open(ciphertext, CANARY_BINDING);
  return keyId === box.keyId && opened?.toString() === CANARY_TEXT;
}
