/**
 * The lock that Kysely's migrations take, `get_lock` for an hour at most. A server that refuses such
 * locks (Percona XtraDB Cluster in strict mode) is one of several members, where none holds anyway.
 */
import { type Kysely, type MigrationLockOptions, MysqlAdapter } from 'kysely';

const REFUSED = /pxc_strict_mode/i;

export class MigrationLockAdapter extends MysqlAdapter {
  // biome-ignore lint/suspicious/noExplicitAny: Kysely's own signature
  override async acquireMigrationLock(db: Kysely<any>, options: MigrationLockOptions) {
    await unlessRefused(super.acquireMigrationLock(db, options));
  }

  // biome-ignore lint/suspicious/noExplicitAny: Kysely's own signature
  override async releaseMigrationLock(db: Kysely<any>, options: MigrationLockOptions) {
    await unlessRefused(super.releaseMigrationLock(db, options));
  }
}

async function unlessRefused(asked: Promise<void>): Promise<void> {
  try {
    await asked;
  } catch (error) {
    if (!(error instanceof Error && REFUSED.test(error.message))) throw error;
  }
}
