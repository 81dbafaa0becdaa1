/**
 * One row that only the right secrets key can open: it keeps out a replica that holds another key.
 */
import { type Database, query } from '../../database/database.ts';
import { isInserted } from '../../database/statements.ts';

export interface SecretsCanary {
  readonly keyId: string;
  readonly ciphertext: Uint8Array;
}

export type SecretsCanaryStore = ReturnType<typeof createSecretsCanaryStore>;

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
    /** That of this database; undefined: no control plane has started on it yet. */
    async find(): Promise<SecretsCanary | undefined> {
      const row = await read();
      return row && canaryOf(row);
    },
    /** Puts another in the place of the canary of that key; nothing where there is none of it. */
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
    /** The canary of this database: the one given here only if there was none yet. */
    async establish(candidate: SecretsCanary): Promise<SecretsCanary> {
      let row = await read();
      if (row === undefined) {
        const { keyId, ciphertext } = candidate;
        const values = { id: CANARY_ID, key_id: keyId, ciphertext, created_at: database.nowMs };
        // Where another replica was first its canary is kept.
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
