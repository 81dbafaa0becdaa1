import { UNPAID } from '@matting/queue/job.ts';
import { type Command, Option } from 'commander';
import type { OperatorJob } from '../operator/operate-jobs.ts';
import {
  ENDED_WITHIN_HOURS_DEFAULT,
  ENDED_WITHIN_HOURS_MAX,
  JOB_GROUPS,
  JOBS_LISTED_DEFAULT,
  JOBS_LISTED_MAX,
  type JobGroup,
  type JobQuestion,
  OperateJobs,
} from '../operator/operate-jobs.ts';
import { wholeNumber } from './arguments.ts';
import { type CliContext, table } from './context.ts';

type ListOptions = { state: JobGroup; since: number } & Pick<
  JobQuestion,
  'account' | 'limit' | 'after'
>;

export function addJobCommands(program: Command, context: CliContext): void {
  const jobs = program.command('jobs').description('list, show and retry jobs');
  jobs
    .command('list')
    .description('list open jobs in queue order, or jobs that ended recently')
    .addOption(
      new Option('--state <state>', 'list jobs in this state')
        .choices([...JOB_GROUPS])
        .default('open'),
    )
    .option('--account <account>', 'only this account, by name or id')
    .option(
      '--since <hours>',
      'list jobs that ended within this many hours',
      counted(ENDED_WITHIN_HOURS_MAX),
      ENDED_WITHIN_HOURS_DEFAULT,
    )
    .option('--limit <n>', 'list at most this many', counted(JOBS_LISTED_MAX), JOBS_LISTED_DEFAULT)
    .option('--after <cursor>', 'continue after this cursor of the previous page')
    .action((options: ListOptions) => listJobs(context, options));
  jobs
    .command('show')
    .description('show a job')
    .argument('<id>', 'a UUID')
    .action(async (id: string) => {
      const job = await context.withStores(stores => new OperateJobs(stores).show(id));
      context.report(job, () =>
        Object.entries(job).map(([name, field]) => `${name.padEnd(16)}${asText(field)}`),
      );
    });
  jobs
    .command('retry')
    .description('end the lease of an open job, so that a control plane claims it again')
    .argument('<id>', 'a UUID')
    .action(async (id: string) => {
      const retried = await context.withStores(stores => new OperateJobs(stores).retry(id));
      context.report(retried, () => [
        retried.lease_ended
          ? `ended the lease of ${retried.holder}; the next free control plane takes the job`
          : 'no control plane holds the job; it waits for a free node',
      ]);
    });
}

async function listJobs(context: CliContext, { state, since, ...options }: ListOptions) {
  const question: JobQuestion = { group: state, endedWithinHours: since, ...options };
  const jobs = await context.withStores(stores => new OperateJobs(stores).list(question));
  context.report(jobs, () => [
    ...table(['JOB', 'STATE', 'MODE', 'CREATED', 'HOLDER', 'LOST', 'ERROR'], jobs.map(rowOf)),
    ...(jobs.length < options.limit ? [] : [`for more, use --after ${jobs.at(-1)?.cursor}`]),
  ]);
}

function rowOf(job: OperatorJob): string[] {
  return [
    job.job_id,
    job.status === 'expired' ? 'expired' : job.state,
    job[UNPAID] ? UNPAID : job.mode,
    job.created_at,
    job.lease?.holder ?? '-',
    String(job.lost_attempts),
    job.error?.code ?? '-',
  ];
}

function asText(field: unknown): string {
  if (field === null) return '-';
  return typeof field === 'object' ? JSON.stringify(field) : String(field);
}

function counted(max: number) {
  return wholeNumber(1, max, `Use a whole number from 1 to ${max}.`);
}
