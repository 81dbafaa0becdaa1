/** `matting migrate`: brings the schema up to date, and waits for a database that is not there yet. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Command } from 'commander';
import { DatabaseOpenError } from '../../database/connect.ts';
import { migrate } from '../../database/migrate.ts';
import { wholeNumber } from './arguments.ts';
import type { CliContext } from './context.ts';

const WAIT_S_MAX = 3600;
/** Between two tries; a try at a host that does not answer takes seconds itself. */
const RETRY_MS = 1000;

export function addMigrateCommand(program: Command, context: CliContext): void {
  const parseWait = wholeNumber(0, WAIT_S_MAX, `seconds are a whole number, 0 to ${WAIT_S_MAX}`);
  program
    .command('migrate')
    .description('bring the database up to date; safe while other processes start')
    .option('--wait-s <seconds>', 'wait so long for a database that cannot be opened', parseWait, 0)
    .action(async ({ waitS }: { readonly waitS: number }) => {
      const ran = await whenOpened(context, waitS, () =>
        context.withDatabase(database => migrate(database, context.packages.migrations)),
      );
      context.report({ migrations: ran }, () =>
        ran.length === 0 ? ['the database is up to date'] : ran.map(name => `${name}: done`),
      );
    });
}

/** Says once for each reason why it waits. @throws the last DatabaseOpenError when time is up. */
async function whenOpened<T>(
  context: CliContext,
  waitS: number,
  work: () => Promise<T>,
): Promise<T> {
  const endMs = performance.now() + waitS * 1000;
  let said: string | undefined;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const passes = error instanceof DatabaseOpenError;
      if (!passes || performance.now() + RETRY_MS > endMs) throw error;
      if (error.message !== said) context.warn(`waiting: ${error.message}`);
      said = error.message;
    }
    await delay(RETRY_MS);
  }
}
