import { type Database, query } from '@matting/database/database.ts';

export interface JobRange {
  readonly after: string;
  readonly to: string;
}

export async function* jobRanges(database: Database, jobsMax: number) {
  for (let after = ''; ; ) {
    const { to, jobs } = await query(database, db =>
      db
        .selectFrom(
          db
            .selectFrom('jobs')
            .select('id')
            .where('id', '>', after)
            .orderBy('id')
            .limit(jobsMax)
            .as('page'),
        )
        .select(({ fn }) => [fn.max('id').as('to'), fn.countAll<number>().as('jobs')])
        .executeTakeFirstOrThrow(),
    );
    if (to === null) return;
    yield { after, to, jobs };
    after = to;
  }
}
