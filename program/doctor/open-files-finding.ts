/** Whether there are files enough for the connections of a program (open-files.ts). */
import { openFilesMax } from '../open-files.ts';
import { type Finding, ok, warning } from './findings.ts';

const ADVICE =
  'raise it where the program is started: LimitNOFILE of systemd, --ulimit nofile of containers, ulimit -n';

/** @param wantedMin fewer than these mean fewer connections than the program is made for */
export function openFilesFinding(wantedMin: number, max = openFilesMax()): Finding {
  if (max === undefined) return ok('open files', 'no limit is known here');
  if (max >= wantedMin) return ok('open files', `${max} may be open`);
  const found = `${max} may be open, of ${wantedMin} that the connections of its ports are made for`;
  return warning('open files', found, ADVICE);
}
