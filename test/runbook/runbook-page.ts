/** docs/runbook.md for tests: one page an alert, with its commands. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';

const ROOT = path.resolve(import.meta.dirname, '../..');
const CLI = /^(?:npm run matting --|matting) /;
/** Runnable as printed, besides the project's own commands. */
const PROGRAMS = /^(?:matting|npm|sh|ss|du|cat|dmesg|openssl|curl) /;

export interface RunbookPage {
  readonly alert: string;
  /** In order, each once. */
  readonly commands: readonly string[];
  readonly text: string;
}

export interface AlertRule {
  readonly alert: string;
  readonly expr: string;
}

export const readPage = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');

export function codeOf(text: string): readonly string[] {
  const spans = [...text.matchAll(/`([^`\n]+)`/g)].map(([, code = '']) => code);
  const lines = [...text.matchAll(/^ {4}(\S.*)$/gm)].map(([, line = '']) => line);
  return [...spans, ...lines].map(code => code.replace(/ {2,}#.*$/, ''));
}

export function commandsOf(text: string): readonly string[] {
  return [...new Set(codeOf(text).filter(code => PROGRAMS.test(code)))];
}

export function ownArgumentsOf(commands: readonly string[]): readonly string[] {
  return commands.filter(line => CLI.test(line)).map(line => line.replace(CLI, ''));
}

export function runbookPages(): ReadonlyMap<string, RunbookPage> {
  const [, ...sections] = readPage('docs/runbook.md').split(/^## /m);
  return new Map(
    sections.map(section => {
      const alert = section.slice(0, section.indexOf('\n'));
      return [alert, { alert, commands: commandsOf(section), text: section }];
    }),
  );
}

export function alertRules(): ReadonlyMap<string, AlertRule> {
  const file: { groups: { rules: AlertRule[] }[] } = parse(
    readPage('deploy/prometheus/alerts.yaml'),
  );
  return new Map(file.groups.flatMap(({ rules }) => rules).map(rule => [rule.alert, rule]));
}
