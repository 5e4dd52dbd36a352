// Compile the modules of an archive with Pyodide, and pack them without their sources.
// A page then compiles nothing, and imports from the archive as it is.
// node browser/compile.mjs PYODIDE ARCHIVE TARGET
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [folder, archive, target] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(path.join(folder, "pyodide.mjs")));
const pyodide = await loadPyodide({ indexURL: folder });
pyodide.unpackArchive(new Uint8Array(fs.readFileSync(archive)), "zip", { extractDir: "/packed" });
pyodide.runPython(`
import compileall, pathlib, shutil
from py_compile import PycInvalidationMode

options = {
    "stripdir": "/packed",
    "legacy": True,  # beside the source, where an archive without sources has them
    "invalidation_mode": PycInvalidationMode.UNCHECKED_HASH,  # there is no source to compare with
    "quiet": 1,
}
if not compileall.compile_dir("/packed", **options):
    raise SystemExit("a module does not compile")
for source in pathlib.Path("/packed").rglob("*.py"):
    if source.name != "__init__.py":  # anyio reads its own
        source.unlink()
shutil.make_archive("/packed", "zip", "/packed")
`);
fs.writeFileSync(target, pyodide.FS.readFile("/packed.zip"));
process.exit(0);
