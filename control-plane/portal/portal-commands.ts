/** The portal's commands, and what it adds to the core's: people of accounts and their links. */
import type { Command } from 'commander';
import type { CliContext } from '../core/cli/context.ts';
import { addMailCommands } from './alerts/mail-commands.ts';
import { addOrderCommands } from './orders/order-commands.ts';
import { addOwnerOption, addPeopleCommands } from './people/people-commands.ts';

export function addPortalCommands(program: Command, context: CliContext): void {
  addOwnerOption(program, context);
  addPeopleCommands(program, context);
  addMailCommands(program, context);
  addOrderCommands(program, context);
}
