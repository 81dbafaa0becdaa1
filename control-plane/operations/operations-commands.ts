/** `doctor`, `backup`, `restore` and `support-bundle`. */
import type { Command } from 'commander';
import type { CliContext } from '../core/cli/context.ts';
import { addBackupCommands } from './backup/backup-commands.ts';
import { addSupportBundleCommand } from './bundle/bundle-command.ts';
import { addDoctorCommand } from './doctor/doctor-command.ts';

export function addOperationsCommands(program: Command, context: CliContext): void {
  addDoctorCommand(program, context);
  addBackupCommands(program, context);
  addSupportBundleCommand(program, context);
}
