/**
 * `jobs show`: a job as the operator may see it. Its result's link and its source stay its owner's.
 */
import type { Command } from 'commander';
import { type Job, publicState } from '../domain/job.ts';
import { publicPrefix } from '../store/api-key-token.ts';
import { type CliContext, CommandError, instant } from './context.ts';

export function addJobCommands(program: Command, context: CliContext): void {
  const jobs = program.command('jobs').description('look at jobs');
  jobs
    .command('show')
    .description('show a job, whoever owns it')
    .argument('<id>', 'a UUID')
    .option('--json', 'print JSON')
    .action(async (id: string, options: { json?: boolean }) => {
      const job = await context.withStores(stores => stores.jobs.find(id.toLowerCase()));
      if (job === undefined) throw new CommandError(`there is no job "${id}"`);
      const value = jobJson(job);
      context.report(options.json, value, () =>
        Object.entries(value).map(([name, field]) => `${name.padEnd(16)}${asText(field)}`),
      );
    });
}

function jobJson(job: Job) {
  const { input, result, lease } = job;
  return {
    job_id: job.id,
    status: publicState(job),
    state: job.state,
    account_id: job.accountId,
    key: publicPrefix(job.apiKeyId),
    mode: job.mode,
    created_at: instant(job.createdAtMs),
    started_at: instant(job.startedAtMs),
    finished_at: instant(job.finishedAtMs),
    expires_at: instant(job.expiresAtMs),
    input: input && {
      format: input.format,
      bytes: input.bytes,
      width: input.width,
      height: input.height,
    },
    output_format: job.outputFormat,
    result: result && { bytes: result.bytes, width: result.width, height: result.height },
    error: job.failure,
    lease: lease && { holder: lease.holder, expires_at: instant(lease.expiresAtMs) },
    fence: job.fence,
    lost_attempts: job.lostAttempts,
    takeovers: job.takeovers,
    timings: job.timings,
  };
}

function asText(field: unknown): string {
  if (field === null) return '-';
  return typeof field === 'object' ? JSON.stringify(field) : String(field);
}
