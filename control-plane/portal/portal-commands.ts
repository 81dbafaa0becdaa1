import type { CliContext } from '@matting/core/cli/context.ts';
import type { Command } from 'commander';
import { addLinkCommands, addOwnerOption } from './link-commands.ts';
import { addMailCommands } from './mails/messages.ts';
import { addOrderCommands } from './orders/order-commands.ts';

export function addPortalCommands(program: Command, context: CliContext): void {
  addOwnerOption(program, context);
  addLinkCommands(program, context);
  addMailCommands(program, context);
  addOrderCommands(program, context);
}
