/** The portal's commands, and what it adds to the core's: people of accounts and their links. */

import type { CliContext } from '@matting/core/cli/context.ts';
import type { Command } from 'commander';
import { addMailCommands } from './alerts/messages.ts';
import { addOrderCommands } from './orders/operate-orders.ts';
import { addOwnerOption, addPeopleCommands } from './people/links.ts';

export function addPortalCommands(program: Command, context: CliContext): void {
  addOwnerOption(program, context);
  addPeopleCommands(program, context);
  addMailCommands(program, context);
  addOrderCommands(program, context);
}
