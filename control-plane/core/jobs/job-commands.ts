/** `jobs list|show|retry`, for the jobs of all accounts. */
import { type Command, Option } from 'commander';
import { wholeNumber } from '../cli/arguments.ts';
import { type CliContext, table } from '../cli/context.ts';
import type { OperatorJob } from './operate-jobs.ts';
import {
  ENDED_WITHIN_HOURS_DEFAULT,
  ENDED_WITHIN_HOURS_MAX,
  JOB_GROUPS,
  JOBS_LISTED_DEFAULT,
  JOBS_LISTED_MAX,
  type JobGroup,
  type JobQuestion,
  OperateJobs,
} from './operate-jobs.ts';

type ListOptions = { state: JobGroup; since: number } & Pick<
  JobQuestion,
  'account' | 'limit' | 'after'
>;

export function addJobCommands(program: Command, context: CliContext): void {
  const jobs = program.command('jobs').description('list jobs, show one, make one claimable again');
  jobs
    .command('list')
    .description('list open jobs in the order of the queue, or those that ended lately')
    .addOption(new Option('--state <state>', 'which ones').choices([...JOB_GROUPS]).default('open'))
    .option('--account <account>', 'of this account alone: name or id')
    .option(
      '--since <hours>',
      'ended within so many hours',
      counted(ENDED_WITHIN_HOURS_MAX),
      ENDED_WITHIN_HOURS_DEFAULT,
    )
    .option('--limit <n>', 'how many at most', counted(JOBS_LISTED_MAX), JOBS_LISTED_DEFAULT)
    .option('--after <cursor>', 'go on behind this one: a cursor of the page before')
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
    .description(
      'end the lease of an open job, so that it is claimed again; refused for a job that ended',
    )
    .argument('<id>', 'a UUID')
    .action(async (id: string) => {
      const retried = await context.withStores(stores => new OperateJobs(stores).retry(id));
      context.report(retried, () => [
        retried.lease_ended
          ? `the lease of ${retried.holder} is ended: the next control plane with room takes the job`
          : 'no replica holds the job: it waits for a node with room',
      ]);
    });
}

async function listJobs(context: CliContext, { state, since, ...options }: ListOptions) {
  const question: JobQuestion = { group: state, endedWithinHours: since, ...options };
  const jobs = await context.withStores(stores => new OperateJobs(stores).list(question));
  context.report(jobs, () => [
    ...table(['JOB', 'STATE', 'MODE', 'CREATED', 'HOLDER', 'LOST', 'ERROR'], jobs.map(rowOf)),
    ...(jobs.length < options.limit ? [] : [`more: --after ${jobs.at(-1)?.cursor}`]),
  ]);
}

function rowOf(job: OperatorJob): string[] {
  return [
    job.job_id,
    job.status === 'expired' ? 'expired' : job.state,
    job.playground ? 'playground' : job.mode,
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
  return wholeNumber(1, max, `a whole number, 1 to ${max}, is expected`);
}
