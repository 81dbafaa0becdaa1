import { type Database, query, readNowMs } from '@matting/database/database.ts';
import { schemaMadeAtMs } from '@matting/database/migrate.ts';
import { isInserted } from '@matting/database/statements.ts';

interface LastAudit {
  /** `none`: no audit has ended, and `ageMs` is the age of the database. */
  readonly kind: 'full' | 'none';
  readonly ageMs: number;
  readonly problems: number;
}

export async function readLastAudits(database: Database): Promise<readonly LastAudit[]> {
  const rows = await query(database, db =>
    db
      .selectFrom('ledger_audits')
      .select(['kind', 'last_finished_at', 'last_problems', database.nowMs.as('now')])
      .execute(),
  );
  const ended = rows.flatMap(
    ({ kind, last_finished_at: finishedAt, last_problems: problems, now }) =>
      finishedAt === null || problems === null
        ? []
        : [{ kind, ageMs: Math.max(0, now - finishedAt), problems }],
  );
  if (ended.length > 0) return ended;
  const ageMs = (await readNowMs(database)) - (await schemaMadeAtMs(database));
  return [{ kind: 'none', ageMs: Math.max(0, ageMs), problems: 0 }];
}

export async function saveAudit(
  database: Database,
  startedAtMs: number,
  problems: number,
): Promise<void> {
  const values = { kind: 'full' as const, jobs_checked_to: 0 };
  await isInserted(query(database, db => db.insertInto('ledger_audits').values(values).execute()));
  const ended = { last_finished_at: database.nowMs, last_problems: problems };
  await query(database, db =>
    db
      .updateTable('ledger_audits')
      .set({ last_started_at: startedAtMs, ...ended })
      .where('kind', '=', 'full')
      .execute(),
  );
}
