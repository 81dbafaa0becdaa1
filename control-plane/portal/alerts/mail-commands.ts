/** `mails retry`: what waits for its next attempt is sent now, once the mail server is back. */
import type { Command } from 'commander';
import type { CliContext } from '../../core/cli/context.ts';

/** Mails that one statement changes. */
const PAGE = 500;

export function addMailCommands(program: Command, context: CliContext): void {
  const mails = program.command('mails').description('send mails again that wait');
  mails
    .command('retry')
    .description('make one more attempt now with every mail that waits')
    .action(async () => {
      const retried = await context.withStores(async ({ outbox }) => {
        let all = 0;
        for (let found = PAGE; found === PAGE; all += found) {
          found = await outbox.sendMailsNow(PAGE);
        }
        return all;
      });
      context.report({ retried }, () => [`mails that are tried again now: ${retried}`]);
    });
}
