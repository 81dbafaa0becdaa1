/** Packages take their part in the submission of a job. */
import { type Database, type Db, query } from '@matting/database/database.ts';

export interface SubmissionStep {
  /**
   * Whether something else of the package has this Idempotency-Key: the job is refused. The core
   * asks before it judges the request any further, and again in the transaction that makes the job,
   * with the account's row held. What the package makes takes that row first, too. One read by an
   * index.
   */
  hasKey(database: Database, db: Db, apiKeyId: string, keyHash: string): Promise<boolean>;
}

export function keyTaken(database: Database, steps: readonly SubmissionStep[]) {
  const taken = async (db: Db, apiKeyId: string, keyHash: string): Promise<boolean> => {
    for (const step of steps) {
      if (await step.hasKey(database, db, apiKeyId, keyHash)) return true;
    }
    return false;
  };
  return {
    taken,
    /** Whether something else of a package has the key. */
    isKeyTaken: (apiKeyId: string, keyHash: string) =>
      query(database, db => taken(db, apiKeyId, keyHash)),
  };
}
