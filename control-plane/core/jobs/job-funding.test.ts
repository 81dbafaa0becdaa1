import { JOB_CLASSES, UNPAID } from '@matting/queue/job.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { onStores } from '../test/fixtures.ts';
import { fundingKindOf, isFundedBy, TAKES_CREDIT, takesCredit } from './job-funding.ts';

onStores(ava.serial, 'the kind of funding', (test, { database }) => {
  test('is the same here and in SQL', async t => {
    const jobs = JOB_CLASSES.flatMap(each => [null, 'first'].map(of => [each, of] as const));
    for (const [jobClass, correction] of jobs) {
      const row = sql`select ${sql.lit(jobClass)} as class, ${sql.lit(correction)} as corrects`;
      const job = { class: jobClass, correction };
      for (const kind of ['unpaid', 'free', 'credit'] as const) {
        const read = sql`select ${isFundedBy(kind)} as own, ${TAKES_CREDIT} as pays from (${row}) as job`;
        const own = Number(fundingKindOf(job) === kind);
        const found = { own, pays: Number(takesCredit(job)) };
        t.deepEqual((await read.execute(database.kysely)).rows, [found]);
      }
      t.is(takesCredit(job), jobClass !== UNPAID && correction === null);
    }
  });
});
