/** `storage`, `doctor`, `backup`, `restore` and `support-bundle`. */
import type { AddCommands } from '../core/cli/program.ts';
import { addBackupCommands } from './backup/backup-commands.ts';
import { addSupportBundleCommand } from './bundle/support-bundle.ts';
import type { LoadConfig } from './composed-program.ts';
import { addDoctorCommand } from './doctor/doctor.ts';
import { addStorageCommands } from './storage/storage-commands.ts';

export function operationsCommands(loadConfig: LoadConfig): AddCommands {
  return (program, context) => {
    const composed = { ...context.packages, loadConfig };
    addStorageCommands(program, context);
    addDoctorCommand(program, context, composed);
    addBackupCommands(program, context);
    addSupportBundleCommand(program, context, composed);
  };
}
