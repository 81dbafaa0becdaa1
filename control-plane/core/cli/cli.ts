/** Commands of other packages are made of these. */
export { type BootstrapOptions, bootstrap } from './account-commands.ts';
export { wholeNumber } from './arguments.ts';
export {
  type CliContext,
  type CliPackages,
  CommandError,
  type LookedAtConfig,
  table,
} from './context.ts';
