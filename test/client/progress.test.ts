import test from 'ava';
import { Progress } from '../../client/src/command/progress.ts';

function open(isTTY: boolean, total: number, columns = 200) {
  let said = '';
  const write = (text: string | Uint8Array) => {
    said += text;
    return true;
  };
  const progress = new Progress(total, { isTTY, columns, write });
  const after = (act: () => void) => {
    said = '';
    act();
    return said
      .replaceAll('\r\x1b[2K', '<')
      .replaceAll(/\d+ s left, \d+(\.\d)? a minute/g, 'N s left, N a minute');
  };
  return { progress, after };
}

test('a terminal has a bar, which lines go above', t => {
  const { progress, after } = open(true, 2);
  const half = `<${'█'.repeat(15)}${'░'.repeat(15)} 1 of 2, N s left, N a minute`;
  const noted = `${half}, b.png: RATE_LIMITED`;
  const steps: [() => void, string][] = [
    [() => progress.note(''), `<${'░'.repeat(30)} 0 of 2`],
    [() => progress.ended('a.png', true), `${half}, a.png`],
    [() => progress.note('b.png: RATE_LIMITED'), noted],
    [() => progress.line('a.png: no'), `<matting: a.png: no\n${noted}`],
    [() => progress.ended('b.png', true), `<${'█'.repeat(30)} 2 of 2, b.png`],
    [() => progress.stop(), '\n'],
  ];
  for (const [act, said] of steps) t.is(after(act), said);
});

test('a bar is no longer than its terminal', t => {
  const { progress, after } = open(true, 2, 60);
  const drawn = after(() => progress.ended(`${'long-'.repeat(20)}.png`, true));
  t.is(drawn.length - '<'.length, 59);
});

test('elsewhere each quarter has a line, with a rate of those that were sent', t => {
  const { progress, after } = open(false, 8);
  const said = after(() => {
    for (let count = 1; count <= 5; count += 1) progress.ended(`${count}.png`, count > 2);
    progress.note('RATE_LIMITED');
    progress.line('a.png: no');
    progress.stop();
  });
  const lines = ['2 of 8, 2.png', '4 of 8, N s left, N a minute, 4.png', 'a.png: no'];
  t.is(said, lines.map(line => `matting: ${line}\n`).join(''));
});
