import assert from 'node:assert/strict';
import test from 'node:test';
import {
  classifyInstructionSet,
  detectInstructionSet,
} from '../../../src/models/preparing/instruction-set.ts';

const CASES: readonly (readonly [arch: string, system: string, cpuInfo: string, name: string])[] = [
  ['x64', 'linux', 'flags\t\t: fpu sse2', 'x64-base'],
  ['x64', 'linux', 'flags\t\t: fpu avx2 fma', 'x64-avx2'],
  ['x64', 'linux', 'flags\t\t: fpu avx2 fma avx_vnni', 'x64-avx2-vnni'],
  ['x64', 'linux', 'flags\t\t: avx2 fma avx512f avx512bw', 'x64-avx512'],
  ['x64', 'linux', 'flags\t\t: avx2 fma avx512f avx512bw avx512_vnni avx_vnni', 'x64-avx512-vnni'],
  ['x64', 'linux', 'flags\t\t: avx512f avx512_vnni amx_int8', 'x64-amx-int8'],
  ['x64', 'win32', '', 'x64-base'],
  ['arm64', 'linux', 'Features\t: fp asimd', 'arm64-neon'],
  ['arm64', 'linux', 'Features\t: fp asimd asimddp', 'arm64-neon-dotprod'],
  ['arm64', 'linux', 'Features\t: fp asimd asimddp i8mm', 'arm64-neon-i8mm'],
  ['arm64', 'darwin', '', 'arm64-neon-dotprod'],
  ['riscv64', 'linux', 'isa : rv64', 'riscv64'],
];

for (const [arch, system, cpuInfo, name] of CASES) {
  test(`${arch} ${system} ${cpuInfo.split(':')[1] ?? 'without cpuinfo'} is ${name}`, () => {
    const text = `processor\t: 0\nmodel name\t: Some CPU\n${cpuInfo}\nbugs\t: none\n`;
    assert.equal(classifyInstructionSet(arch, system, text), name);
  });
}

test('this machine has a class that can be part of a file name', async () => {
  assert.match(await detectInstructionSet(), /^[a-z0-9-]+$/);
});
