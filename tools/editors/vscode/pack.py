"""Packs this folder for VS Code, VSCodium, Cursor and Theia: `pack.py [OUT]`, by default canonc.vsix here.

The zip file has the extension, the modules that `npm ci` installed, and a manifest made from package.json. Equal folders
give equal bytes.
"""

import json
import sys
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
FILES = ["package.json", "extension.js", "language-configuration.json", "README.md"]
FOLDERS = ["syntaxes", "node_modules"]
ENDINGS = {".js": "application/javascript", ".json": "application/json", ".md": "text/markdown"}
# The moment that every packed file has.
MOMENT = (1980, 1, 1, 0, 0, 0)


def manifest(package: dict) -> str:
    text = {key: escape(str(package[key])) for key in ["name", "displayName", "description", "version", "publisher"]}
    engine = escape(package["engines"]["vscode"])
    return f"""<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id="{text["name"]}" Version="{text["version"]}" Publisher="{text["publisher"]}"/>
    <DisplayName>{text["displayName"]}</DisplayName>
    <Description xml:space="preserve">{text["description"]}</Description>
    <Categories>{escape(",".join(package["categories"]))}</Categories>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value="{engine}"/>
    </Properties>
  </Metadata>
  <Installation>
    <InstallationTarget Id="Microsoft.VisualStudio.Code"/>
  </Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md" Addressable="true"/>
  </Assets>
</PackageManifest>
"""


def types(endings: list[str]) -> str:
    rows = {".vsixmanifest": "text/xml"}
    rows.update({ending: ENDINGS.get(ending, "text/plain") for ending in endings if ending})
    lines = [f'<Default Extension="{ending}" ContentType="{kind}"/>' for ending, kind in sorted(rows.items())]
    start = '<?xml version="1.0" encoding="utf-8"?>\n'
    space = "http://schemas.openxmlformats.org/package/2006/content-types"
    return f'{start}<Types xmlns="{space}">{"".join(lines)}</Types>\n'


def main() -> int:
    package = json.loads((HERE / "package.json").read_text())
    for name in package["dependencies"]:
        if not (HERE / "node_modules" / name).is_dir():
            print(f"error: the module {name} is missing\nhelp: run `npm ci` in {HERE}", file=sys.stderr)
            return 3
    files = [HERE / name for name in FILES]
    for folder in FOLDERS:
        files += sorted(path for path in (HERE / folder).rglob("*") if path.is_file() and ".bin" not in path.parts)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "canonc.vsix"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:

        def add(name: str, text: bytes) -> None:
            info = zipfile.ZipInfo(name, MOMENT)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            packed.writestr(info, text)

        add("extension.vsixmanifest", manifest(package).encode())
        add("[Content_Types].xml", types(sorted({path.suffix for path in files})).encode())
        for path in files:
            add(f"extension/{path.relative_to(HERE).as_posix()}", path.read_bytes())
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
