import type { CliContext } from '@matting/core/cli/context.ts';
import type { Command } from 'commander';
import { addBackupCommands } from './backup/backup-commands.ts';
import { addDoctorCommand } from './doctor/doctor.ts';
import { addStorageCommands } from './storage/storage-commands.ts';

export function addOperationsCommands(program: Command, context: CliContext): void {
  addStorageCommands(program, context);
  addDoctorCommand(program, context);
  addBackupCommands(program, context);
}
