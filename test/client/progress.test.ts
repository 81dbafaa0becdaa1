/** What a run of the command shows of itself. */
import test from 'ava';
import { Progress } from '../../client/src/command/progress.ts';

function open(isTTY: boolean, total: number) {
  let said = '';
  const write = (text: string | Uint8Array) => {
    said += text;
    return true;
  };
  const progress = new Progress(total, { isTTY, columns: 60, write });
  const after = (act: () => void) => {
    said = '';
    act();
    return said.replaceAll('\r\x1b[2K', '<').replaceAll(/\d s left/g, 'N s left');
  };
  return { progress, after };
}

test('a terminal has a bar, which lines go above', t => {
  const { progress, after } = open(true, 2);
  const half = `<${'█'.repeat(15)}${'░'.repeat(15)} 1 of 2, N s left`;
  const noted = `${half}, RATE_LIMIT`;
  const steps: [() => void, string][] = [
    [() => progress.note(''), `<${'░'.repeat(30)} 0 of 2`],
    [() => progress.ended(), half],
    [() => progress.note('RATE_LIMITED'), noted],
    [() => progress.line('a.png: no'), `<matting: a.png: no\n${noted}`],
    [() => progress.ended(), `<${'█'.repeat(30)} 2 of 2`],
    [() => progress.stop(), '\n'],
  ];
  for (const [act, said] of steps) t.is(after(act), said);
});

test('elsewhere each quarter has a line', t => {
  const { progress, after } = open(false, 8);
  const said = after(() => {
    for (let count = 0; count < 5; count += 1) progress.ended();
    progress.note('RATE_LIMITED');
    progress.line('a.png: no');
    progress.stop();
  });
  t.is(said, 'matting: 2 of 8\nmatting: 4 of 8\nmatting: a.png: no\n');
});
